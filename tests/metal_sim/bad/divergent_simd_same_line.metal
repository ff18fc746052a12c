// expect: kernel f: {file}:{here}: divergent simd_sum: another thread of the simdgroup is in simd_sum
#include <metal_stdlib>
using namespace metal;

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              uint t [[thread_index_in_threadgroup]])
{
    y[t] = t % 2 ? simd_sum(x[t]) : simd_sum(-x[t]); // here
}
