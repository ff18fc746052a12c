// expect: {file}:{here}: error: lambdas are not in MSL
#include <metal_stdlib>
using namespace metal;

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              uint t [[thread_index_in_threadgroup]])
{
    auto g = [](float a) { return a * 2; }; // here
    y[t] = g(x[t]);
}
