// expect: kernel f: argument p at index 2 needs 64 bytes, the buffer has 60 from its offset on
// bytes: 60
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
