// expect: kernel f: {file}:{here}: write of 8 bytes out of bounds: crosses the end of buffer 1 \(y\)
// threads: 1
// group: 1
#include <metal_stdlib>
using namespace metal;

kernel void f(device float *y [[buffer(1)]], uint i [[thread_position_in_grid]])
{
    device packed_float2 *p = (device packed_float2 *)(y + 63);
    p[0] = packed_float2(float2(i, i)); // here
}
