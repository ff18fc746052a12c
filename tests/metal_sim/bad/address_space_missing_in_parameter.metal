// expect: {file}:{here}: error: pointer p names no address space
#include <metal_stdlib>
using namespace metal;

inline float g(const float *p) // here
{
    return *p;
}

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              uint t [[thread_index_in_threadgroup]])
{
    y[t] = g(&x[t]);
}
