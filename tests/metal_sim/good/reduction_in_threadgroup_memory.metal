// result: 64
#include <metal_stdlib>
using namespace metal;

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              ushort t [[thread_index_in_threadgroup]], uint group [[threadgroup_position_in_grid]])
{
    threadgroup float s[64];
    s[t] = x[t];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (ushort m = 32; m > 0; m /= 2) {
        if (t < m)
            s[t] += s[t + m];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    y[t] = s[0];
}
