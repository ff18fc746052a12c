// result: 2
#include <metal_stdlib>
using namespace metal;

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              ushort t [[thread_index_in_threadgroup]])
{
    y[t] = x[t];
    threadgroup_barrier(mem_flags::mem_device);
    const float a = y[63 - t];
    threadgroup_barrier(mem_flags::mem_device);
    y[t] = a + 1;
}
