// expect: kernel f: {file}:{here}: race: write at byte 0 of buffer 1 \(y\), which thread 0 of threadgroup number 0 wrote
// group: 32
#include <metal_stdlib>
using namespace metal;

kernel void f(device float *y [[buffer(1)]], uint t [[thread_index_in_threadgroup]],
              uint group [[threadgroup_position_in_grid]])
{
    if (t == 0)
        y[0] = group; // here
}
