// expect: kernel f: {file}:{here}: race: .* of threadgroup number
// group: 32
#include <metal_stdlib>
using namespace metal;

kernel void f(device float *y [[buffer(1)]], uint i [[thread_position_in_grid]],
              uint group [[threadgroup_position_in_grid]])
{
    const float a = y[(i + 32) & 63]; // here
    y[i] = a + group;
}
