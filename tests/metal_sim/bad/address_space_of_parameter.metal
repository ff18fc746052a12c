// expect: {file}:{here}:.*error: no matching function
#include <metal_stdlib>
using namespace metal;

inline float g(thread const float *p)
{
    return *p;
}

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              uint t [[thread_index_in_threadgroup]])
{
    y[t] = g(x); // here
}
