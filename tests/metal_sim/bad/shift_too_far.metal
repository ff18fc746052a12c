// expect: kernel f: {file}:{here}: shift by more bits than there are, or of a sign, in the type
#include <metal_stdlib>
using namespace metal;

kernel void f(device float *y [[buffer(1)]], uint i [[thread_position_in_grid]])
{
    y[i] = 1u << i; // here
}
