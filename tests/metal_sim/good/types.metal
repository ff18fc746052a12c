// result: 0
#include <metal_stdlib>
using namespace metal;

static_assert(sizeof(float3) == 16 && sizeof(packed_float3) == 12, "size");
static_assert(sizeof(half4) == 8 && alignof(half4) == 8, "size");
static_assert(sizeof(long) == 8 && sizeof(1.0) == 4 && sizeof(uchar4) == 4, "size");

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              constant uint &n [[buffer(2)]], uint i [[thread_position_in_grid]])
{
    const half sum = half(2049.0f) + 1.0h; // both round to 2048 and then to even
    const uint2 a = uint2(1, 2);
    const uint3 b = uint3(a, 3u);
    const float2 c = as_type<float2>(a);
    const uchar4 q = as_type<uchar4>(0x04030201u);
    float4 v = float4(q);
    v.xy += float2(b.yz);
    const half4 h = half4(float4(1.0f, 2.0f, 3.0f, 65504.0f));
    const float4 squares = float4(h * h);
    const float exact = fma(1.0f + FLT_EPSILON, 1.0f - FLT_EPSILON, -1.0f);
    float wrong = float(sum) == 2048 ? 0 : 1;
    wrong += dot(v, float4(1.0f)) == 15 ? 0 : 1;
    wrong += as_type<uint>(c.y) == 2 ? 0 : 1;
    wrong += float(as_type<half>(ushort(0x3c00))) == 1 ? 0 : 1;
    wrong += squares.z == 9 && isinf(squares.w) ? 0 : 1;
    wrong += exact == -FLT_EPSILON * FLT_EPSILON ? 0 : 1;
    wrong += clamp(7, 1, 5) == 5 && popcount(n) == 1 && abs(-3) == 3 ? 0 : 1;
    wrong += min(float2(1, 5), float2(4, 2)).y == 2 ? 0 : 1;
    y[i] = wrong + x[i] - 1;
}
