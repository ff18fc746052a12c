// dst_a = input @ weight_a.T and dst_b = input @ weight_b.T for two Q4_0 weight matrices of one
// shape, in one dispatch that reads the input once.

#include <metal_stdlib>
using namespace metal;

#include "kernel_params.h"
#include "proj_q4_0.h"

template <int NR, int NI>
kernel void fused_dual_proj_q4_0(device const block_q4_0 *weight_a [[buffer(0)]],
                                 device const block_q4_0 *weight_b [[buffer(1)]],
                                 device const float *input [[buffer(2)]],
                                 device float *dst_a [[buffer(3)]],
                                 device float *dst_b [[buffer(4)]],
                                 constant proj_q4_0_params &params [[buffer(5)]],
                                 uint3 threadgroup_position [[threadgroup_position_in_grid]],
                                 ushort lane [[thread_index_in_simdgroup]],
                                 ushort simdgroup [[simdgroup_index_in_threadgroup]]) {
    project<2, NR, NI>(weight_a, weight_b, input, dst_a, dst_b, params, threadgroup_position, lane,
                       simdgroup);
}

template
    [[host_name("kernel_fused_dual_proj_q4_0_f32")]] kernel decltype(fused_dual_proj_q4_0<
                                                                     PROJ_ROWS_PER_SIMDGROUP, 1>)
        fused_dual_proj_q4_0<PROJ_ROWS_PER_SIMDGROUP, 1>;
template
    [[host_name("kernel_fused_dual_proj_q4_0_f32_m2")]] kernel decltype(fused_dual_proj_q4_0<
                                                                        PROJ_ROWS_PER_SIMDGROUP_M2,
                                                                        2>)
        fused_dual_proj_q4_0<PROJ_ROWS_PER_SIMDGROUP_M2, 2>;
template
    [[host_name("kernel_fused_dual_proj_q4_0_f32_m4")]] kernel decltype(fused_dual_proj_q4_0<
                                                                        PROJ_ROWS_PER_SIMDGROUP_M4,
                                                                        4>)
        fused_dual_proj_q4_0<PROJ_ROWS_PER_SIMDGROUP_M4, 4>;
template
    [[host_name("kernel_fused_dual_proj_q4_0_f32_m8")]] kernel decltype(fused_dual_proj_q4_0<
                                                                        PROJ_ROWS_PER_SIMDGROUP_M8,
                                                                        8>)
        fused_dual_proj_q4_0<PROJ_ROWS_PER_SIMDGROUP_M8, 8>;
