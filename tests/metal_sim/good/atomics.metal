// result-bits: 64 63
#include <metal_stdlib>
using namespace metal;

kernel void f(device atomic_uint *count [[buffer(1)]], uint i [[thread_position_in_grid]])
{
    atomic_fetch_add_explicit(&count[0], 1u, memory_order_relaxed);
    atomic_fetch_max_explicit(&count[1], i, memory_order_relaxed);
}
