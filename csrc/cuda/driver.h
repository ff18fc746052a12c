// The driver's library, libcuda: the few types and functions that are used of it, by their
// documented names and values. It is looked for at run time; nothing of CUDA is needed to build.

#ifndef MLXOPS_CUDA_DRIVER_H
#define MLXOPS_CUDA_DRIVER_H

#include "mlxops.h"

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;

#define CUDA_SUCCESS 0
#define CUDA_ERROR_OUT_OF_MEMORY 2

#define CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR 75
#define CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR 76
#define CU_STREAM_NON_BLOCKING 1 // not ordered with the default stream, which others may use
#define CU_JIT_ERROR_LOG_BUFFER 5
#define CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES 6

// X(name, symbol, parameters): the name in CUDA's documentation, and that of the version meant.
#define MO_CUDA_FUNCTIONS(X)                                                                       \
    X(cuGetErrorName, "cuGetErrorName", (CUresult error, const char **text))                       \
    X(cuGetErrorString, "cuGetErrorString", (CUresult error, const char **text))                   \
    X(cuDriverGetVersion, "cuDriverGetVersion", (int *version))                                    \
    X(cuInit, "cuInit", (unsigned flags))                                                          \
    X(cuDeviceGetCount, "cuDeviceGetCount", (int *count))                                          \
    X(cuDeviceGet, "cuDeviceGet", (CUdevice * device, int ordinal))                                \
    X(cuDeviceGetName, "cuDeviceGetName", (char *name, int size, CUdevice device))                 \
    X(cuDeviceGetAttribute, "cuDeviceGetAttribute", (int *value, int attribute, CUdevice device))  \
    X(cuDeviceTotalMem, "cuDeviceTotalMem_v2", (size_t * bytes, CUdevice device))                  \
    X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain",                                        \
      (CUcontext * context, CUdevice device))                                                      \
    X(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (CUdevice device))                \
    X(cuCtxPushCurrent, "cuCtxPushCurrent_v2", (CUcontext context))                                \
    X(cuCtxPopCurrent, "cuCtxPopCurrent_v2", (CUcontext * context))                                \
    X(cuStreamCreate, "cuStreamCreate", (CUstream * stream, unsigned flags))                       \
    X(cuStreamSynchronize, "cuStreamSynchronize", (CUstream stream))                               \
    X(cuModuleLoadDataEx, "cuModuleLoadDataEx",                                                    \
      (CUmodule * module, const void *image, unsigned n_options, int *options, void **values))     \
    X(cuModuleGetFunction, "cuModuleGetFunction",                                                  \
      (CUfunction * function, CUmodule module, const char *name))                                  \
    X(cuMemAlloc, "cuMemAlloc_v2", (CUdeviceptr * memory, size_t size))                            \
    X(cuMemFree, "cuMemFree_v2", (CUdeviceptr memory))                                             \
    X(cuMemHostRegister, "cuMemHostRegister_v2", (void *memory, size_t size, unsigned flags))      \
    X(cuMemHostUnregister, "cuMemHostUnregister", (void *memory))                                  \
    X(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2",                                                   \
      (CUdeviceptr to, const void *from, size_t size, CUstream stream))                            \
    X(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2",                                                   \
      (void *to, CUdeviceptr from, size_t size, CUstream stream))                                  \
    X(cuLaunchKernel, "cuLaunchKernel",                                                            \
      (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,   \
       unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream,                 \
       void **arguments, void **extra))

#define MO_CUDA_MEMBER(name, symbol, parameters) CUresult(*name) parameters;

// Filled by mo_cuda_load.
extern struct mo_cuda_functions { MO_CUDA_FUNCTIONS(MO_CUDA_MEMBER) } mo_cuda;

// Finds the library and its functions. false, with the reason, where there is none or an older one
// than the kernels need. It stays loaded.
bool mo_cuda_load(char *why_not, size_t size);

// The driver's name and text for an error. At most size bytes, always terminated; returns text.
const char *mo_cuda_error_text(CUresult error, char *text, size_t size);

// MO_OK for CUDA_SUCCESS. Otherwise MO_OUT_OF_MEMORY or MO_DEVICE_ERROR, with what was called and
// the driver's name and text for the error.
mo_status mo_cuda_check(CUresult result, const char *call);

#endif
