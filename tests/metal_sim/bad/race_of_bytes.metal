// expect: kernel f: {file}:{here}: race: write at byte 3 of buffer 1 \(y\), which thread [01] of the same threadgroup wrote
#include <metal_stdlib>
using namespace metal;

kernel void f(device float *y [[buffer(1)]], uint t [[thread_index_in_threadgroup]])
{
    device uchar *bytes = (device uchar *)y;
    bytes[t < 2 ? 3 : t + 4] = 1; // here
}
