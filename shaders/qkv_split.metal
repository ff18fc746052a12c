// Splits the channels of a fused [seq, q | k | v] tensor into three contiguous tensors.

#include <metal_stdlib>
using namespace metal;

#include "kernel_params.h"

// Grid: threads (qkv_ch, seq). The words are copied as integers, so that every bit of every NaN
// arrives.
kernel void qkv_split_f32(device const uint *qkv [[buffer(0)]], device uint *q [[buffer(1)]],
                          device uint *k [[buffer(2)]], device uint *v [[buffer(3)]],
                          constant qkv_split_params &params [[buffer(4)]],
                          uint2 position [[thread_position_in_grid]]) {
    const uint channel = position.x;
    const ulong row = position.y;
    if (channel >= params.qkv_ch || row >= params.seq)
        return;
    const uint value = qkv[row * params.qkv_ch + channel];
    const uint k_0 = params.q_sp;
    const uint v_0 = params.q_sp + params.k_sp;
    if (channel < k_0)
        q[row * params.q_sp + channel] = value;
    else if (channel < v_0)
        k[row * params.k_sp + (channel - k_0)] = value;
    else
        v[row * params.v_sp + (channel - v_0)] = value;
}
