// dst = input @ weight.T for one Q4_0 weight matrix.

#include <metal_stdlib>
using namespace metal;

#include "kernel_params.h"
#include "proj_q4_0.h"

kernel void kernel_mul_mv_q4_0_f32(device const block_q4_0 *weight [[buffer(0)]],
                                   device const float *input [[buffer(1)]],
                                   device float *dst [[buffer(2)]],
                                   constant proj_q4_0_params &params [[buffer(3)]],
                                   uint3 threadgroup_position [[threadgroup_position_in_grid]],
                                   ushort lane [[thread_index_in_simdgroup]],
                                   ushort simdgroup [[simdgroup_index_in_threadgroup]]) {
    project<1>(weight, weight, input, dst, dst, params, threadgroup_position, lane, simdgroup);
}
