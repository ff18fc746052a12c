// result: 10
#include <metal_stdlib>
using namespace metal;

#define UNROLL _Pragma("clang loop unroll(full)")

constant float table[4] = {1, 2, 3, 4};

// A pointer of each address space goes to a function of its own.
inline float total(thread const float *a, constant float *b, ushort n)
{
    float sum = 0;
    UNROLL
    for (ushort j = 0; j < 4; j++)
        sum += a[j] * b[j];
    return sum + n;
}

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              uint i [[thread_position_in_grid]])
{
    float own[4];
    UNROLL
    for (ushort j = 0; j < 4; j++)
        own[j] = x[(i + j) & 63];
    y[i] = total(own, table, 0);
}
