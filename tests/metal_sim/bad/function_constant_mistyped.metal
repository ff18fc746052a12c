// expect: function constant 3: its value was set as MTLDataType 3, the shader declares MTLDataType 29
// constants: 3=1.5
#include <metal_stdlib>
using namespace metal;

constant int a [[function_constant(3)]];

kernel void f(device float *y [[buffer(1)]], uint i [[thread_position_in_grid]])
{
    y[i] = a;
}
