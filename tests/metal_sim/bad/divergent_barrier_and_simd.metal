// expect: kernel f: {file}:{here}: divergent (threadgroup_barrier|simd_sum): not reached
#include <metal_stdlib>
using namespace metal;

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              uint t [[thread_index_in_threadgroup]])
{
    if (t < 16)
        threadgroup_barrier(mem_flags::mem_none); // here
    y[t] = simd_sum(x[t]);                        // here
}
