// expect: kernel f: {file}:{here}: divergent simd_sum: not reached by every thread of the simdgroup; thread \(\d+, 0, 0\) has returned
#include <metal_stdlib>
using namespace metal;

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              uint t [[thread_index_in_threadgroup]])
{
    if (t >= 59)
        return;
    y[t] = simd_sum(x[t]); // here
}
