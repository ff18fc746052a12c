// expect: {file}:{here}:.*error: constexpr if is a C\+\+17 extension
#include <metal_stdlib>
using namespace metal;

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              uint t [[thread_index_in_threadgroup]])
{
    if constexpr (true) // here
        y[t] = x[t];
}
