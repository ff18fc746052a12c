// expect: kernel f: {file}:{here}: write of 4 bytes out of bounds: \d+ bytes (past the end of threadgroup memory s|before threadgroup memory r)
#include <metal_stdlib>
using namespace metal;

kernel void f(device float *y [[buffer(1)]], uint t [[thread_index_in_threadgroup]])
{
    threadgroup float s[32], r[64];
    r[t] = 1;
    threadgroup float *p = s;
    p[t] = 1; // here
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[t] = s[t & 31] + r[t];
}
