// expect: kernel f: {file}:{here}: divergent simdgroup_barrier: not reached by every thread of the simdgroup; thread \(0, 0, 0\) has returned
#include <metal_stdlib>
using namespace metal;

kernel void f(device float *y [[buffer(1)]], uint t [[thread_index_in_threadgroup]])
{
    if (t % 32)
        simdgroup_barrier(mem_flags::mem_none); // here
    y[t] = 1;
}
