// expect: kernel f: {file}:{here}: divergent threadgroup_barrier: not reached by every thread of the threadgroup; thread \(40, 0, 0\) has returned
#include <metal_stdlib>
using namespace metal;

kernel void f(device float *y [[buffer(1)]], uint t [[thread_index_in_threadgroup]])
{
    if (t < 40)
        threadgroup_barrier(mem_flags::mem_threadgroup); // here
    y[t] = 1;
}
