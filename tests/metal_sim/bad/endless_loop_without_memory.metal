// expect: kernel f: {file}:{here}: still running after 200 ms
// watchdog: 200
#include <metal_stdlib>
using namespace metal;

kernel void f(device float *y [[buffer(1)]], uint t [[thread_index_in_threadgroup]])
{
    volatile uint n = 1;
    while (n)          // here
        n = n * 2 + 1; // here
    y[t] = n;
}
