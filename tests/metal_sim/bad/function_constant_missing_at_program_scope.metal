// expect: function constant 3 has no value, and a constant at program scope is made from it
#include <metal_stdlib>
using namespace metal;

constant int a [[function_constant(3)]];
constant int b = a + 1;

kernel void f(device float *y [[buffer(1)]], uint i [[thread_position_in_grid]])
{
    y[i] = b;
}
