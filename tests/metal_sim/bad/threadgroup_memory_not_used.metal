// expect: kernel f: threadgroup memory was set at index 3, which the kernel does not use
// threadgroup-memory: 3=64
#include <metal_stdlib>
using namespace metal;

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              uint i [[thread_position_in_grid]])
{
    y[i] = x[i];
}
