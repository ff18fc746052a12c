// expect: kernel f: {file}:{here}: misaligned write of 16 bytes at byte 4 of buffer 1 \(y\)
// threads: 1
// group: 1
#include <metal_stdlib>
using namespace metal;

kernel void f(device float *y [[buffer(1)]], uint i [[thread_position_in_grid]])
{
    device float4 *p = (device float4 *)(y + 1);
    p[i] = float4(1.0f); // here
}
