// expect: {file}:{here}: error: kernel f: parameter t has no attribute
#include <metal_stdlib>
using namespace metal;

kernel void f(device float *y [[buffer(1)]], uint t) // here
{
    y[t] = 1;
}
