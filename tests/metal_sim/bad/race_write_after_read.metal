// expect: kernel f: {file}:{here}: race: (write|read) at byte \d+ of threadgroup memory s, which thread \d+ of the same threadgroup (read|wrote) with no barrier
#include <metal_stdlib>
using namespace metal;

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              uint t [[thread_index_in_threadgroup]])
{
    threadgroup float s[64];
    s[t] = x[t];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const float a = s[(t + 1) & 63]; // here
    s[t] = a;                        // here
    y[t] = a;
}
