// expect: {file}:{here}: error: pointer p names no address space
#include <metal_stdlib>
using namespace metal;

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              uint t [[thread_index_in_threadgroup]])
{
    const float *p = x; // here
    y[t] = p[0];
}
