// expect: kernel f: {file}:{here}: race: write at byte 0 of buffer 1 \(y\), which thread \d+ of the same threadgroup wrote
#include <metal_stdlib>
using namespace metal;

kernel void f(device float *y [[buffer(1)]], uint t [[thread_index_in_threadgroup]])
{
    y[t / 64] = 1; // here
}
