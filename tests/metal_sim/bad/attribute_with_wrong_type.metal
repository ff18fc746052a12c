// expect: kernel f: argument t: its type does not fit its attribute
#include <metal_stdlib>
using namespace metal;

kernel void f(device float *y [[buffer(1)]], uint3 t [[thread_index_in_threadgroup]])
{
    y[t.x] = 1;
}
