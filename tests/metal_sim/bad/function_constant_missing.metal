// expect: kernel f: {file}:{here}: read of function constant a \(index 3\), which has no value
#include <metal_stdlib>
using namespace metal;

constant int a [[function_constant(3)]];

kernel void f(device float *y [[buffer(1)]], uint i [[thread_position_in_grid]])
{
    y[i] = a; // here
}
