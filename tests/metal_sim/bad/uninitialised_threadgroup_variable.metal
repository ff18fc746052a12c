// expect: kernel f: {file}:{here}: read of uninitialised threadgroup memory s at byte 252
#include <metal_stdlib>
using namespace metal;

kernel void f(device float *y [[buffer(1)]], uint t [[thread_index_in_threadgroup]])
{
    threadgroup float s[64];
    if (t < 63)
        s[t] = 1;
    y[t] = s[t]; // here
}
