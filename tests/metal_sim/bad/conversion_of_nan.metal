// expect: kernel f: {file}:{here}: a value that does not fit is converted from the type 'float'
#include <metal_stdlib>
using namespace metal;

kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              uint i [[thread_position_in_grid]])
{
    y[i] = int(x[i] * NAN); // here
}
