// expect: dispatchThreads:threadsPerThreadgroup:: 32784 bytes of threadgroup memory
// threadgroup-memory: 0=32784
#include <metal_stdlib>
using namespace metal;

kernel void f(device float *y [[buffer(1)]], threadgroup float *s [[threadgroup(0)]],
              uint t [[thread_index_in_threadgroup]])
{
    s[t] = 1;
    y[t] = s[t];
}
