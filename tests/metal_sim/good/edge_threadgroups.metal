// threads: 64
// group: 25
// result: 1
#include <metal_stdlib>
using namespace metal;

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              uint i [[thread_position_in_grid]], uint size [[threads_per_threadgroup]],
              uint groups [[threadgroups_per_grid]])
{
    y[i] = x[i] + (i < 50 ? size - 25 : size - 14) + groups - 3;
}
