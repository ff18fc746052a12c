// expect: {file}:{here}: error: a threadgroup variable cannot have an initialiser
#include <metal_stdlib>
using namespace metal;

kernel void f(device float *y [[buffer(1)]], uint t [[thread_index_in_threadgroup]])
{
    threadgroup float s = 0; // here
    y[t] = s;
}
