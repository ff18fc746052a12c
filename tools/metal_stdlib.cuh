// What <metal_stdlib> gives the shaders, in CUDA C++. Put before a shader that
// tools/msl_to_cuda.py translated; the shader is in the same namespace, so that its types are these
// and not CUDA's own of the same names. Everything is a device
// function (NVRTC's --device-as-default-execution-space).

#define __METAL_VERSION__ 240

namespace metal {

static_assert(sizeof(long) == 8, "a long of the Metal Shading Language has 64 bits");

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef int int32_t;
typedef uint uint32_t;
typedef long int64_t;
typedef ulong uint64_t;

// A half is only converted to float, which is exact.
struct half {
    ushort bits;
    operator float() const {
        float value;
        asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
        return value;
    }
};

struct alignas(8) uint2 {
    uint x, y;
};
struct alignas(16) uint3 {
    uint x, y, z;
};
struct alignas(16) uint4 {
    uint x, y, z, w;
};
struct alignas(16) float4 {
    float x, y, z, w;
    float4() = default;
    explicit float4(float value) : x(value), y(value), z(value), w(value) {
    }
};

template <typename To, typename From> inline To as_type(From from) {
    static_assert(sizeof(To) == sizeof(From), "as_type: the sizes differ");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

inline float fma(float a, float b, float c) {
    return __fmaf_rn(a, b, c);
}

template <typename T> inline T min(T a, T b) {
    return b < a ? b : a;
}

template <typename T> inline T max(T a, T b) {
    return a < b ? b : a;
}

// ---- simdgroups are warps, threadgroups are blocks ----

template <typename T> inline T simd_shuffle_xor(T value, ushort mask) {
    return __shfl_xor_sync(0xFFFFFFFF, value, mask);
}

enum class mem_flags { mem_none, mem_device, mem_threadgroup };

inline void threadgroup_barrier(mem_flags) {
    __syncthreads();
}

// ---- what the parameters with attributes are ----

// A position as whichever vector the kernel declares.
struct grid_position {
    uint x, y, z;
    operator uint2() const {
        return {x, y};
    }
    operator uint3() const {
        return {x, y, z};
    }
};

// CUDA's grids hold 65,535 blocks at most along y, so that z carries the rest of a longer y; the
// grid has one layer along the real z. There may be more threadgroups along y than were asked for.
inline grid_position threadgroup_position_in_grid() {
    return {blockIdx.x, blockIdx.y + gridDim.y * blockIdx.z, 0};
}

inline grid_position thread_position_in_grid() {
    const grid_position threadgroup = threadgroup_position_in_grid();
    return {threadgroup.x * blockDim.x + threadIdx.x, threadgroup.y * blockDim.y + threadIdx.y,
            threadIdx.z};
}

inline uint thread_index_in_threadgroup() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

inline uint thread_index_in_simdgroup() {
    return thread_index_in_threadgroup() % 32;
}

inline uint simdgroup_index_in_threadgroup() {
    return thread_index_in_threadgroup() / 32;
}

// Function constants are not set.
#define is_function_constant_defined(name) false

} // namespace metal
