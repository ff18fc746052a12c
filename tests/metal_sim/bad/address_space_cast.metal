// expect: {file}:{here}: error: a pointer is cast from one address space to another
#include <metal_stdlib>
using namespace metal;

kernel void f(device float *y [[buffer(1)]], uint t [[thread_index_in_threadgroup]])
{
    threadgroup float s[4];
    device float *p = (device float *)s; // here
    p[t] = y[0];
}
