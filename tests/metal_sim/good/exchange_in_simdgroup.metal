// result: 1
#include <metal_stdlib>
using namespace metal;

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              ushort t [[thread_index_in_threadgroup]])
{
    threadgroup float s[64], r[64];
    s[t] = x[t] + t;
    simdgroup_barrier(mem_flags::mem_threadgroup);
    r[t] = s[t ^ 1] - (t ^ 1);
    y[t] = r[t];
}
