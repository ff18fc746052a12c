// expect: {file}:{here}: error: this pragma is not known to the simulator
#include <metal_stdlib>
using namespace metal;

#pragma METAL fp math_mode(safe) // here

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              uint t [[thread_index_in_threadgroup]])
{
    y[t] = x[t];
}
