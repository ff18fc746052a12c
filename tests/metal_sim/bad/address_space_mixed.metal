// expect: {file}:{here}:.*error: cannot initialize a variable of type
#include <metal_stdlib>
using namespace metal;

kernel void f(device float *y [[buffer(1)]], uint t [[thread_index_in_threadgroup]])
{
    threadgroup float s[4];
    threadgroup float *p = y; // here
    p[t] = s[0];
}
