// expect: kernel f: {file}:{here}: race: read at byte \d+ of threadgroup memory s
#include <metal_stdlib>
using namespace metal;

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              uint t [[thread_index_in_threadgroup]])
{
    threadgroup float s[64];
    s[t] = x[t];
    threadgroup_barrier(mem_flags::mem_device);
    y[t] = s[63 - t]; // here
}
