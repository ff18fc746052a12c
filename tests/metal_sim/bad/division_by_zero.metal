// expect: kernel f: {file}:{here}: division by zero, or of the least by -1, in the type 'unsigned int'
#include <metal_stdlib>
using namespace metal;

kernel void f(device float *y [[buffer(1)]], uint i [[thread_position_in_grid]])
{
    y[i] = 5 / i; // here
}
