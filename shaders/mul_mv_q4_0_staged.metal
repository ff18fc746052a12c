// dst = input @ weight.T for one Q4_0 weight matrix, the input in threadgroup memory.

#include <metal_stdlib>
using namespace metal;

#include "kernel_params.h"
#include "proj_q4_0.h"
#include "proj_q4_0_staged.h"

template <int S, int R, int M, int D, int G>
kernel void mul_mv_q4_0_staged(device const block_q4_0 *weight [[buffer(0)]],
                               device const float *input [[buffer(1)]],
                               device float *dst [[buffer(2)]],
                               constant proj_q4_0_params &params [[buffer(3)]],
                               uint3 threadgroup_position [[threadgroup_position_in_grid]],
                               ushort lane [[thread_index_in_simdgroup]],
                               ushort simdgroup [[simdgroup_index_in_threadgroup]]) {
    threadgroup float4 staged[staged_size<S, M>()];
    project_staged<S, R, M, D, G>(weight, input, dst, params, threadgroup_position, lane, simdgroup,
                                  simdgroup, G, staged);
}

// clang-format off
template [[host_name("kernel_mul_mv_q4_0_f32_s1_r2_m1_d8_g8")]]
    kernel decltype(mul_mv_q4_0_staged<PROJ_S1_R2_M1_D8_G8>) mul_mv_q4_0_staged<PROJ_S1_R2_M1_D8_G8>;
template [[host_name("kernel_mul_mv_q4_0_f32_s4_r1_m1_d1_g8")]]
    kernel decltype(mul_mv_q4_0_staged<PROJ_S4_R1_M1_D1_G8>) mul_mv_q4_0_staged<PROJ_S4_R1_M1_D1_G8>;
template [[host_name("kernel_mul_mv_q4_0_f32_s4_r2_m1_d1_g8")]]
    kernel decltype(mul_mv_q4_0_staged<PROJ_S4_R2_M1_D1_G8>) mul_mv_q4_0_staged<PROJ_S4_R2_M1_D1_G8>;
template [[host_name("kernel_mul_mv_q4_0_f32_s1_r2_m2_d4_g8")]]
    kernel decltype(mul_mv_q4_0_staged<PROJ_S1_R2_M2_D4_G8>) mul_mv_q4_0_staged<PROJ_S1_R2_M2_D4_G8>;
template [[host_name("kernel_mul_mv_q4_0_f32_s4_r1_m2_d1_g8")]]
    kernel decltype(mul_mv_q4_0_staged<PROJ_S4_R1_M2_D1_G8>) mul_mv_q4_0_staged<PROJ_S4_R1_M2_D1_G8>;
template [[host_name("kernel_mul_mv_q4_0_f32_s4_r2_m2_d1_g8")]]
    kernel decltype(mul_mv_q4_0_staged<PROJ_S4_R2_M2_D1_G8>) mul_mv_q4_0_staged<PROJ_S4_R2_M2_D1_G8>;
template [[host_name("kernel_mul_mv_q4_0_f32_s1_r2_m4_d2_g8")]]
    kernel decltype(mul_mv_q4_0_staged<PROJ_S1_R2_M4_D2_G8>) mul_mv_q4_0_staged<PROJ_S1_R2_M4_D2_G8>;
template [[host_name("kernel_mul_mv_q4_0_f32_s4_r1_m4_d1_g8")]]
    kernel decltype(mul_mv_q4_0_staged<PROJ_S4_R1_M4_D1_G8>) mul_mv_q4_0_staged<PROJ_S4_R1_M4_D1_G8>;
template [[host_name("kernel_mul_mv_q4_0_f32_s4_r2_m4_d1_g8")]]
    kernel decltype(mul_mv_q4_0_staged<PROJ_S4_R2_M4_D1_G8>) mul_mv_q4_0_staged<PROJ_S4_R2_M4_D1_G8>;
template [[host_name("kernel_mul_mv_q4_0_f32_s1_r2_m8_d4_g8")]]
    kernel decltype(mul_mv_q4_0_staged<PROJ_S1_R2_M8_D4_G8>) mul_mv_q4_0_staged<PROJ_S1_R2_M8_D4_G8>;
template [[host_name("kernel_mul_mv_q4_0_f32_s4_r2_m8_d1_g8")]]
    kernel decltype(mul_mv_q4_0_staged<PROJ_S4_R2_M8_D1_G8>) mul_mv_q4_0_staged<PROJ_S4_R2_M8_D1_G8>;
