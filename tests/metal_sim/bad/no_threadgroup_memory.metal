// expect: kernel f: no threadgroup memory is set at index 0, for argument s
#include <metal_stdlib>
using namespace metal;

kernel void f(device float *y [[buffer(1)]], threadgroup float *s [[threadgroup(0)]],
              uint t [[thread_index_in_threadgroup]])
{
    s[t] = 1;
    y[t] = s[t];
}
