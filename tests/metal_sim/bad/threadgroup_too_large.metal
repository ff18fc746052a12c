// expect: dispatchThreads:threadsPerThreadgroup:: a threadgroup of 64 x 1 x 1 threads, the pipeline takes at most 32
// max-threads: 32
#include <metal_stdlib>
using namespace metal;

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              uint i [[thread_position_in_grid]])
{
    y[i] = x[i];
}
