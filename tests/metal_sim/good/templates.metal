// result: 3
#include <metal_stdlib>
using namespace metal;

template <int n, typename T> struct constant_of { T value; };

template <int n, typename T> inline void set(thread constant_of<n, T> &constant_n, T value)
{
    constant_n.value = value;
}

template <int n, typename T>
kernel void add(device const T *x [[buffer(0)]], device T *y [[buffer(1)]],
                uint i [[thread_position_in_grid]])
{
    constant_of<n, T> constant_n;
    set(constant_n, T(n));
    y[i] = x[i] + constant_n.value;
}

template [[host_name("f")]] kernel decltype(add<2, float>) add<2, float>;
template [[host_name("g")]] kernel void add<3, float>(device const float *x [[buffer(0)]],
                                                      device float *y [[buffer(1)]],
                                                      uint i [[thread_position_in_grid]]);
