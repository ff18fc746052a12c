// expect: kernel f: {file}:{here}: misaligned read of 4 bytes at byte 2 of buffer 0 \(x\)
#include <metal_stdlib>
using namespace metal;

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              uint i [[thread_position_in_grid]])
{
    device const uchar *bytes = (device const uchar *)x;
    y[i] = *(device const uint *)(bytes + 2); // here
}
