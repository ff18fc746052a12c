// expect: kernel f: {file}:{here}: write to read-only constant data
#include <metal_stdlib>
using namespace metal;

int counter;

kernel void f(device float *y [[buffer(1)]], uint i [[thread_position_in_grid]])
{
    counter = int(i); // here
    y[i] = counter;
}
