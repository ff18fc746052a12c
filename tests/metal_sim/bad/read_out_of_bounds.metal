// expect: kernel f: {file}:{here}: read of 4 bytes out of bounds: 0 bytes past the end of buffer 0 \(x\), which has 256 bytes \(threadgroup \(0, 0, 0\), thread \(63, 0, 0\)\)
#include <metal_stdlib>
using namespace metal;

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              uint i [[thread_position_in_grid]])
{
    y[i] = x[i + 1]; // here
}
