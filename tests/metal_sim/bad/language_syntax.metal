// expect: {file}:{here}:.*error: use of undeclared identifier
#include <metal_stdlib>
using namespace metal;

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              uint t [[thread_index_in_threadgroup]])
{
    y[t] = z[t]; // here
}
