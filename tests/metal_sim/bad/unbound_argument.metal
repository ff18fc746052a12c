// expect: kernel f: nothing is bound at index 1, for argument y
// omit: 1
#include <metal_stdlib>
using namespace metal;

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              uint i [[thread_position_in_grid]])
{
    y[i] = x[i];
}
