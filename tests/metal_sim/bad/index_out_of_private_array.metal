// expect: kernel f: {file}:{here}: index out of the bounds of 'float ?\[4\]'
#include <metal_stdlib>
using namespace metal;

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              uint i [[thread_position_in_grid]])
{
    float own[4] = {1, 2, 3, 4};
    y[i] = own[i & 7] + x[i]; // here
}
