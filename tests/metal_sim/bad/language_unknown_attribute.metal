// expect: {file}:{here}: error: attribute thread_index of parameter t is not known
#include <metal_stdlib>
using namespace metal;

kernel void f(device float *y [[buffer(1)]], uint t [[thread_index]]) // here
{
    y[t] = 1;
}
