// expect: kernel f: {file}:{here}: multiplication overflows the type 'int'
#include <metal_stdlib>
using namespace metal;

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              uint i [[thread_position_in_grid]])
{
    const int row = int(i) * 50000000; // here
    y[i] = x[row & 63];
}
