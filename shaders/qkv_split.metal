// Splits the channels of a fused [seq, q | k | v] tensor into three contiguous tensors.

#include <metal_stdlib>
using namespace metal;

#include "kernel_params.h"

// W channels at a time, in one T. Grid: threads (qkv_ch / W, seq). The words are copied as
// integers, so that every bit of every NaN arrives.
template <typename T, uint W>
kernel void qkv_split(device const T *qkv [[buffer(0)]], device T *q [[buffer(1)]],
                      device T *k [[buffer(2)]], device T *v [[buffer(3)]],
                      constant qkv_split_params &params [[buffer(4)]],
                      uint2 position [[thread_position_in_grid]]) {
    const uint channel = position.x;
    const ulong row = position.y;
    const uint q_sp = params.q_sp / W, k_sp = params.k_sp / W, v_sp = params.v_sp / W;
    const uint qkv_ch = params.qkv_ch / W;
    if (channel >= qkv_ch || row >= params.seq)
        return;
    const T value = qkv[row * qkv_ch + channel];
    if (channel < q_sp)
        q[row * q_sp + channel] = value;
    else if (channel - q_sp < k_sp)
        k[row * k_sp + (channel - q_sp)] = value;
    else
        v[row * v_sp + (channel - q_sp - k_sp)] = value;
}

template [[host_name("qkv_split_f32")]] kernel decltype(qkv_split<uint, 1>) qkv_split<uint, 1>;
template [[host_name("qkv_split_f32x4")]] kernel decltype(qkv_split<uint4, QKV_SPLIT_WIDE>)
    qkv_split<uint4, QKV_SPLIT_WIDE>;
