// dst_a = input @ weight_a.T and dst_b = input @ weight_b.T for two Q4_0 weight matrices of one
// shape, in one dispatch that reads the input once.

#include <metal_stdlib>
using namespace metal;

#include "kernel_params.h"
#include "proj_q4_0.h"

kernel void kernel_fused_dual_proj_q4_0_f32(device const block_q4_0 *weight_a [[buffer(0)]],
                                            device const block_q4_0 *weight_b [[buffer(1)]],
                                            device const float *input [[buffer(2)]],
                                            device float *dst_a [[buffer(3)]],
                                            device float *dst_b [[buffer(4)]],
                                            constant proj_q4_0_params &params [[buffer(5)]],
                                            uint3 threadgroup_position
                                            [[threadgroup_position_in_grid]],
                                            ushort lane [[thread_index_in_simdgroup]],
                                            ushort simdgroup [[simdgroup_index_in_threadgroup]]) {
    project<2>(weight_a, weight_b, input, dst_a, dst_b, params, threadgroup_position, lane,
               simdgroup);
}
