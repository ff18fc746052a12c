// expect: kernel f: {file}:{here}: read of 4 bytes out of bounds: \d+ bytes past the end of buffer 0 \(x\)
#include <metal_stdlib>
using namespace metal;

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              uint i [[thread_position_in_grid]])
{
    y[i] = x[(ulong(i) + 1) << 24]; // here
}
