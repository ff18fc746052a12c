// expect: kernel f: {file}:{here}: still running after 200 ms: an endless loop\?
// watchdog: 200
#include <metal_stdlib>
using namespace metal;

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              uint t [[thread_index_in_threadgroup]])
{
    float a = 0;
    for (uint n = 1; n; n = n * 2 + 1) // here
        a += x[n & 63];                // here
    y[t] = a;
}
