// expect: kernel f: {file}:{here}: read of 4 bytes out of bounds: not near any argument
#include <metal_stdlib>
using namespace metal;

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              uint i [[thread_position_in_grid]])
{
    device const float *p = (device const float *)(ulong(i) + 16 - i);
    y[i] = p[0] + x[i]; // here
}
