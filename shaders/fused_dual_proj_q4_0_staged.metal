// dst_a = input @ weight_a.T and dst_b = input @ weight_b.T for two Q4_0 weight matrices of one
// shape, the input in threadgroup memory: every other simdgroup works on weight_b.

#include <metal_stdlib>
using namespace metal;

#include "kernel_params.h"
#include "proj_q4_0.h"
#include "proj_q4_0_staged.h"

template <int S, int R, int M, int D, int G>
kernel void fused_dual_proj_q4_0_staged(device const block_q4_0 *weight_a [[buffer(0)]],
                                        device const block_q4_0 *weight_b [[buffer(1)]],
                                        device const float *input [[buffer(2)]],
                                        device float *dst_a [[buffer(3)]],
                                        device float *dst_b [[buffer(4)]],
                                        constant proj_q4_0_params &params [[buffer(5)]],
                                        uint3 threadgroup_position [[threadgroup_position_in_grid]],
                                        ushort lane [[thread_index_in_simdgroup]],
                                        ushort simdgroup [[simdgroup_index_in_threadgroup]]) {
    threadgroup float4 staged[staged_size<S, M>()];
    const bool is_b = simdgroup % 2 == 1;
    project_staged<S, R, M, D, G>(is_b ? weight_b : weight_a, input, is_b ? dst_b : dst_a, params,
                                  threadgroup_position, lane, simdgroup, simdgroup / 2, G / 2,
                                  staged);
}

// clang-format off
template [[host_name("kernel_fused_dual_proj_q4_0_f32_s1_r2_m1_d8_g8")]]
    kernel decltype(fused_dual_proj_q4_0_staged<PROJ_S1_R2_M1_D8_G8>) fused_dual_proj_q4_0_staged<PROJ_S1_R2_M1_D8_G8>;
template [[host_name("kernel_fused_dual_proj_q4_0_f32_s4_r1_m1_d1_g8")]]
    kernel decltype(fused_dual_proj_q4_0_staged<PROJ_S4_R1_M1_D1_G8>) fused_dual_proj_q4_0_staged<PROJ_S4_R1_M1_D1_G8>;
template [[host_name("kernel_fused_dual_proj_q4_0_f32_s4_r2_m1_d1_g8")]]
    kernel decltype(fused_dual_proj_q4_0_staged<PROJ_S4_R2_M1_D1_G8>) fused_dual_proj_q4_0_staged<PROJ_S4_R2_M1_D1_G8>;
template [[host_name("kernel_fused_dual_proj_q4_0_f32_s1_r2_m2_d4_g8")]]
    kernel decltype(fused_dual_proj_q4_0_staged<PROJ_S1_R2_M2_D4_G8>) fused_dual_proj_q4_0_staged<PROJ_S1_R2_M2_D4_G8>;
template [[host_name("kernel_fused_dual_proj_q4_0_f32_s4_r1_m2_d1_g8")]]
    kernel decltype(fused_dual_proj_q4_0_staged<PROJ_S4_R1_M2_D1_G8>) fused_dual_proj_q4_0_staged<PROJ_S4_R1_M2_D1_G8>;
template [[host_name("kernel_fused_dual_proj_q4_0_f32_s4_r2_m2_d1_g8")]]
    kernel decltype(fused_dual_proj_q4_0_staged<PROJ_S4_R2_M2_D1_G8>) fused_dual_proj_q4_0_staged<PROJ_S4_R2_M2_D1_G8>;
template [[host_name("kernel_fused_dual_proj_q4_0_f32_s1_r2_m4_d2_g8")]]
    kernel decltype(fused_dual_proj_q4_0_staged<PROJ_S1_R2_M4_D2_G8>) fused_dual_proj_q4_0_staged<PROJ_S1_R2_M4_D2_G8>;
template [[host_name("kernel_fused_dual_proj_q4_0_f32_s4_r1_m4_d1_g8")]]
    kernel decltype(fused_dual_proj_q4_0_staged<PROJ_S4_R1_M4_D1_G8>) fused_dual_proj_q4_0_staged<PROJ_S4_R1_M4_D1_G8>;
template [[host_name("kernel_fused_dual_proj_q4_0_f32_s4_r2_m4_d1_g8")]]
    kernel decltype(fused_dual_proj_q4_0_staged<PROJ_S4_R2_M4_D1_G8>) fused_dual_proj_q4_0_staged<PROJ_S4_R2_M4_D1_G8>;
template [[host_name("kernel_fused_dual_proj_q4_0_f32_s1_r2_m8_d4_g8")]]
    kernel decltype(fused_dual_proj_q4_0_staged<PROJ_S1_R2_M8_D4_G8>) fused_dual_proj_q4_0_staged<PROJ_S1_R2_M8_D4_G8>;
template [[host_name("kernel_fused_dual_proj_q4_0_f32_s4_r2_m8_d1_g8")]]
    kernel decltype(fused_dual_proj_q4_0_staged<PROJ_S4_R2_M8_D1_G8>) fused_dual_proj_q4_0_staged<PROJ_S4_R2_M8_D1_G8>;
