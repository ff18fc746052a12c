#include "cuda/context.h"
#include "device.h"
#include "status.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

// What the PTX was made for: compute capability 7.5, Turing.
#define OLDEST_MAJOR 7
#define OLDEST_MINOR 5

static CUdevice gpu;
static char gpu_text[256];
static size_t gpu_memory;

// ---- The GPU -----------------------------------------------------------------------------------

static bool look(char *name, int name_size, int *major, int *minor, CUresult *result,
                 const char **call) {
#define CALL(function, ...)                                                                        \
    (*call = #function, (*result = mo_cuda.function(__VA_ARGS__)) == CUDA_SUCCESS)
    return CALL(cuDeviceGet, &gpu, 0) && CALL(cuDeviceGetName, name, name_size, gpu) &&
           CALL(cuDeviceGetAttribute, major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, gpu) &&
           CALL(cuDeviceGetAttribute, minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, gpu) &&
           CALL(cuDeviceTotalMem, &gpu_memory, gpu);
}

bool mo_cuda_find_gpu(char *why_not, size_t size) {
    char name[128] = "", text[256];
    int count = 0, major = 0, minor = 0;
    const char *call = "cuInit";
    CUresult result = mo_cuda.cuInit(0);
    if (result == CUDA_SUCCESS) {
        call = "cuDeviceGetCount";
        result = mo_cuda.cuDeviceGetCount(&count);
    }
    if (result == CUDA_SUCCESS && count < 1) {
        snprintf(why_not, size, "the NVIDIA driver shows no GPU");
        return false;
    }
    if (result != CUDA_SUCCESS || !look(name, sizeof name, &major, &minor, &result, &call)) {
        snprintf(why_not, size, "%s failed: %s", call,
                 mo_cuda_error_text(result, text, sizeof text));
        return false;
    }
    if (major < OLDEST_MAJOR || (major == OLDEST_MAJOR && minor < OLDEST_MINOR)) {
        snprintf(why_not, size, "%s has compute capability %d.%d; %d.%d or later is needed", name,
                 major, minor, OLDEST_MAJOR, OLDEST_MINOR);
        return false;
    }
    snprintf(gpu_text, sizeof gpu_text, "%s, compute capability %d.%d, %.1f GiB", name, major,
             minor, (double)gpu_memory / 0x1p30);
    return true;
}

const char *mo_cuda_gpu_text(void) {
    return gpu_text;
}

size_t mo_cuda_gpu_memory(void) {
    return gpu_memory;
}

// ---- The context -------------------------------------------------------------------------------

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool is_open;
static CUcontext context;
static CUstream stream;

static mo_status make_stream(void) {
    mo_status status = mo_cuda_check(mo_cuda.cuCtxPushCurrent(context), "cuCtxPushCurrent");
    if (status != MO_OK)
        return status;
    status =
        mo_cuda_check(mo_cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    mo_cuda_leave();
    return status;
}

// Called with the lock held.
static mo_status open_context(void) {
    mo_status status =
        mo_cuda_check(mo_cuda.cuDevicePrimaryCtxRetain(&context, gpu), "cuDevicePrimaryCtxRetain");
    if (status != MO_OK)
        return status;
    status = make_stream();
    if (status == MO_OK)
        atomic_store(&is_open, true);
    else
        mo_cuda.cuDevicePrimaryCtxRelease(gpu);
    return status;
}

static mo_status open_once(void) {
    if (atomic_load(&is_open))
        return MO_OK;
    pthread_mutex_lock(&opening);
    const mo_status status = atomic_load(&is_open) ? MO_OK : open_context();
    pthread_mutex_unlock(&opening);
    return status;
}

mo_status mo_cuda_enter(void) {
    if (mo_in_forked_child())
        return mo_fail(MO_DEVICE_ERROR, "CUDA: a forked process cannot use the GPU; use device "
                                        "'cpu', or start processes by spawn");
    const mo_status status = open_once();
    if (status != MO_OK)
        return status;
    return mo_cuda_check(mo_cuda.cuCtxPushCurrent(context), "cuCtxPushCurrent");
}

bool mo_cuda_enter_again(void) {
    if (mo_in_forked_child() || !atomic_load(&is_open))
        return false;
    // A second attempt, since what is not cleaned up is lost.
    return mo_cuda.cuCtxPushCurrent(context) == CUDA_SUCCESS ||
           mo_cuda.cuCtxPushCurrent(context) == CUDA_SUCCESS;
}

void mo_cuda_leave(void) {
    CUcontext left;
    mo_cuda.cuCtxPopCurrent(&left);
}

CUstream mo_cuda_stream(void) {
    return stream;
}

mo_status mo_cuda_wait(void) {
    const mo_status status =
        mo_cuda_check(mo_cuda.cuStreamSynchronize(stream), "cuStreamSynchronize");
    if (status != MO_OK)
        mo_cuda_wait_quietly();
    return status;
}

void mo_cuda_wait_quietly(void) {
    // A second attempt, since nothing may be running when its memory goes to others.
    if (mo_cuda.cuStreamSynchronize(stream) != CUDA_SUCCESS)
        mo_cuda.cuStreamSynchronize(stream);
}
