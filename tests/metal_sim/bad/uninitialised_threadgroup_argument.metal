// expect: kernel f: {file}:{here}: read of uninitialised threadgroup memory 0 \(s\) at byte \d+
// threadgroup-memory: 0=256
#include <metal_stdlib>
using namespace metal;

kernel void f(device float *y [[buffer(1)]], threadgroup float *s [[threadgroup(0)]],
              uint t [[thread_index_in_threadgroup]])
{
    s[t] += 1; // here
    y[t] = s[t];
}
