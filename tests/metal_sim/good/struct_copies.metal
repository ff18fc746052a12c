// result: 1
#include <metal_stdlib>
using namespace metal;

struct pair {
    half d;
    uchar q[6];
};

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              ushort t [[thread_index_in_threadgroup]])
{
    const pair p = ((device const pair *)x)[t / 2];
    threadgroup pair s[64];
    s[t] = p;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    thread const uchar *q = p.q;
    y[t] = s[63 - t].q[5] == 0x3f && q[4] == 0x80 ? 1 : 0;
}
