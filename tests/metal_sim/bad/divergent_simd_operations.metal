// expect: kernel f: {file}:{here}: divergent simd_\w+: another thread of the simdgroup is in simd_\w+ at {file}:{here}
#include <metal_stdlib>
using namespace metal;

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              uint t [[thread_index_in_threadgroup]])
{
    y[t] = t % 2 ? simd_sum(x[t]) : simd_max(x[t]); // here
}
