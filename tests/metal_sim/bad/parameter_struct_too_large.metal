// expect: kernel f: argument p at index 2 is of 64 bytes, setBytes gave 72
// bytes: 72
#include <metal_stdlib>
using namespace metal;

struct params {
    uint n[16];
};

kernel void f(constant params &p [[buffer(2)]], device float *y [[buffer(1)]],
              uint i [[thread_position_in_grid]])
{
    y[i] = p.n[0];
}
