// expect: kernel f: {file}:{here}: write of 4 bytes out of bounds: 0 bytes past the end of buffer 1 \(y\)
// threads: 65
// group: 65
#include <metal_stdlib>
using namespace metal;

kernel void f(device float *y [[buffer(1)]], uint i [[thread_position_in_grid]])
{
    y[i] = 1; // here
}
