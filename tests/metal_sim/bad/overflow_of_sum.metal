// expect: kernel f: {file}:{here}: addition overflows the type 'int'
#include <metal_stdlib>
using namespace metal;

kernel void f(device float *y [[buffer(1)]], uint i [[thread_position_in_grid]])
{
    const int large = INT_MAX - 62 + int(i); // here
    y[i] = large;
}
