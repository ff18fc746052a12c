// expect: kernel f: {file}:{here}: index out of the bounds of 'const uchar ?\[16\]'
#include <metal_stdlib>
using namespace metal;

struct block {
    half d;
    uchar q[16];
};

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              uint i [[thread_position_in_grid]])
{
    device const block *b = (device const block *)x;
    y[i] = b[0].q[i % 17]; // here
}
