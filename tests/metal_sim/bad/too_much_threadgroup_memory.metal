// expect: kernel f: {file}:{here}: 32772 bytes of threadgroup memory, the device has 32768
#include <metal_stdlib>
using namespace metal;

kernel void f(device float *y [[buffer(1)]], uint t [[thread_index_in_threadgroup]])
{
    threadgroup float s[8193]; // here
    s[t] = 1;
    y[t] = s[t];
}
