// result: 0
#include <metal_stdlib>
using namespace metal;

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              ushort lane [[thread_index_in_simdgroup]], uint i [[thread_position_in_grid]])
{
    float a = x[i];
    for (ushort s = 16; s > 0; s /= 2)
        a += simd_shuffle_xor(a, s);
    float wrong = a == 32 ? 0 : 1;
    wrong += simd_sum(lane) == 496 ? 0 : 1;
    wrong += simd_max(lane) == 31 && simd_min(lane) == 0 ? 0 : 1;
    wrong += simd_shuffle(lane, ushort(5)) == 5 ? 0 : 1;
    wrong += simd_shuffle_down(lane, 1) == (lane < 31 ? lane + 1 : 31) ? 0 : 1;
    wrong += simd_shuffle_up(lane, 1) == (lane > 0 ? lane - 1 : 0) ? 0 : 1;
    wrong += simd_broadcast(lane, 7) == 7 && simd_broadcast_first(lane) == 0 ? 0 : 1;
    wrong += simd_any(lane == 3) && !simd_all(lane == 3) ? 0 : 1;
    y[i] = wrong;
}
