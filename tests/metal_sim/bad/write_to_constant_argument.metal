// expect: {file}:{here}:.*error: cannot assign
#include <metal_stdlib>
using namespace metal;

kernel void f(constant uint &n [[buffer(2)]], device float *y [[buffer(1)]],
              uint i [[thread_position_in_grid]])
{
    n = 3; // here
    y[i] = n;
}
