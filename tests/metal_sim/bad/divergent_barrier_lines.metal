// expect: kernel f: {file}:{here}: divergent threadgroup_barrier: thread \d+ waits in another at {file}:{here}
#include <metal_stdlib>
using namespace metal;

kernel void f(device float *y [[buffer(1)]], uint t [[thread_index_in_threadgroup]])
{
    if (t < 40)
        threadgroup_barrier(mem_flags::mem_threadgroup); // here
    else
        threadgroup_barrier(mem_flags::mem_threadgroup); // here
    y[t] = 1;
}
