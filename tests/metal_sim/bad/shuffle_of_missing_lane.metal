// expect: kernel f: {file}:{here}: simd_shuffle_xor reads lane \d+, which the simdgroup does not have
// threads: 40
// group: 40
#include <metal_stdlib>
using namespace metal;

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              uint i [[thread_position_in_grid]])
{
    y[i] = simd_shuffle_xor(x[i], 16); // here
}
