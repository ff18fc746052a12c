// expect: kernel f: {file}:{here}: write to read-only buffer 0 \(x\)
#include <metal_stdlib>
using namespace metal;

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              uint i [[thread_position_in_grid]])
{
    const_cast<device float *>(x)[i] = 1; // here
    y[i] = x[i];
}
