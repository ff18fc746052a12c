// dst = input @ weight.T for one Q4_0 weight matrix.

#include <metal_stdlib>
using namespace metal;

#include "kernel_params.h"
#include "proj_q4_0.h"

template <int NR, int NI>
kernel void mul_mv_q4_0(device const block_q4_0 *weight [[buffer(0)]],
                        device const float *input [[buffer(1)]], device float *dst [[buffer(2)]],
                        constant proj_q4_0_params &params [[buffer(3)]],
                        uint3 threadgroup_position [[threadgroup_position_in_grid]],
                        ushort lane [[thread_index_in_simdgroup]],
                        ushort simdgroup [[simdgroup_index_in_threadgroup]]) {
    project<1, NR, NI>(weight, weight, input, dst, dst, params, threadgroup_position, lane,
                       simdgroup);
}

template
    [[host_name("kernel_mul_mv_q4_0_f32")]] kernel decltype(mul_mv_q4_0<PROJ_ROWS_PER_SIMDGROUP, 1>)
        mul_mv_q4_0<PROJ_ROWS_PER_SIMDGROUP, 1>;
template [[host_name(
    "kernel_mul_mv_q4_0_f32_m2")]] kernel decltype(mul_mv_q4_0<PROJ_ROWS_PER_SIMDGROUP_M2, 2>)
    mul_mv_q4_0<PROJ_ROWS_PER_SIMDGROUP_M2, 2>;
template [[host_name(
    "kernel_mul_mv_q4_0_f32_m4")]] kernel decltype(mul_mv_q4_0<PROJ_ROWS_PER_SIMDGROUP_M4, 4>)
    mul_mv_q4_0<PROJ_ROWS_PER_SIMDGROUP_M4, 4>;
template [[host_name(
    "kernel_mul_mv_q4_0_f32_m8")]] kernel decltype(mul_mv_q4_0<PROJ_ROWS_PER_SIMDGROUP_M8, 8>)
    mul_mv_q4_0<PROJ_ROWS_PER_SIMDGROUP_M8, 8>;
