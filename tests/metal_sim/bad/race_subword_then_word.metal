// expect: kernel f: {file}:{here}: race: (read|write) at byte [0-3] of buffer 1 \(y\)
#include <metal_stdlib>
using namespace metal;

kernel void f(device float *y [[buffer(1)]], uint t [[thread_index_in_threadgroup]])
{
    device uchar *bytes = (device uchar *)y;
    if (t < 4)
        bytes[t] = 1; // here
    if (t == 5)
        y[0] = 2; // here
}
