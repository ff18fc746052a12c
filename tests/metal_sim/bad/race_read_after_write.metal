// expect: kernel f: {file}:{here}: race: (read|write) at byte \d+ of threadgroup memory s, which thread \d+ of the same threadgroup (wrote|read) with no barrier between
#include <metal_stdlib>
using namespace metal;

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              uint t [[thread_index_in_threadgroup]])
{
    threadgroup float s[64];
    s[t] = 0;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    s[t] = x[t];            // here
    y[t] = s[(t + 1) & 63]; // here
}
