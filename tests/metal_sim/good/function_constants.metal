// constants: 3=2 4=0.5
// result: 9.5
#include <metal_stdlib>
using namespace metal;

constant int a [[function_constant(3)]];
constant float b [[function_constant(4)]];
constant int c [[function_constant(5)]];
constant bool has_c = is_function_constant_defined(c);
constant int c_or_7 = has_c ? c : 7;

kernel void f(device float *y [[buffer(1)]], uint i [[thread_position_in_grid]])
{
    const int a_or_0 = is_function_constant_defined(a) ? a : 0;
    y[i] = a_or_0 + b + c_or_7;
}
