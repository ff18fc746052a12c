// expect: kernel f: {file}:{here}: still running after 200 ms
// watchdog: 200
#include <metal_stdlib>
using namespace metal;

kernel void f(device uint *y [[buffer(1)]], uint t [[thread_index_in_threadgroup]])
{
    while (y[t] != 77)                              // here
        threadgroup_barrier(mem_flags::mem_device); // here
}
