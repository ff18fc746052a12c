// expect: kernel f: {file}:{here}: read of uninitialised threadgroup memory s at byte \d+ \(threadgroup \(1, 0, 0\)
// group: 32
#include <metal_stdlib>
using namespace metal;

kernel void f(device float *y [[buffer(1)]], uint i [[thread_position_in_grid]],
              uint t [[thread_index_in_threadgroup]], uint group [[threadgroup_position_in_grid]])
{
    threadgroup float s[32];
    if (group == 0)
        s[t] = 1;
    y[i] = s[t]; // here
}
