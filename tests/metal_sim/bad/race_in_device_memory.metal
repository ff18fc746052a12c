// expect: kernel f: {file}:{here}: race: (read|write) at byte \d+ of buffer 1 \(y\), which thread \d+ of the same threadgroup (read|wrote)
#include <metal_stdlib>
using namespace metal;

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              uint t [[thread_index_in_threadgroup]])
{
    y[t] = x[t];              // here
    const float a = y[t ^ 1]; // here
    if (a < 0)
        y[t] = a;
}
