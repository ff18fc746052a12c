// expect: kernel f: {file}:{here}: write of 4 bytes out of bounds: \d+ bytes past the end of threadgroup memory 0 \(s\)
// threadgroup-memory: 0=128
#include <metal_stdlib>
using namespace metal;

kernel void f(device float *y [[buffer(1)]], threadgroup float *s [[threadgroup(0)]],
              uint t [[thread_index_in_threadgroup]])
{
    s[t] = 1; // here
    y[t] = s[t];
}
