// result: 3
#include <metal_stdlib>
using namespace metal;

template <int n, typename T>
kernel void add(device const T *x [[buffer(0)]], device T *y [[buffer(1)]],
                uint i [[thread_position_in_grid]])
{
    y[i] = x[i] + n;
}

template [[host_name("f")]] kernel decltype(add<2, float>) add<2, float>;
template [[host_name("g")]] kernel void add<3, float>(device const float *x [[buffer(0)]],
                                                      device float *y [[buffer(1)]],
                                                      uint i [[thread_position_in_grid]]);
