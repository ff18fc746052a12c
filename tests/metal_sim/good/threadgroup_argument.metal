// threadgroup-memory: 0=256
// result: 1
#include <metal_stdlib>
using namespace metal;

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              threadgroup float *s [[threadgroup(0)]], ushort t [[thread_index_in_threadgroup]])
{
    s[t] = x[t];
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
    y[t] = s[63 - t];
}
