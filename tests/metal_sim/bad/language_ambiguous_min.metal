// expect: {file}:{here}:.*error: no matching function for call to .min
#include <metal_stdlib>
using namespace metal;

kernel void f(device float *y [[buffer(1)]], uint t [[thread_index_in_threadgroup]])
{
    y[t] = min(1, t); // here
}
