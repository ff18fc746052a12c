#include "cuda/driver.h"
#include "status.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY "libcuda.so.1"

// The version of CUDA that reads the kernels' PTX (7.8), and the driver that has it.
#define OLDEST_VERSION 11080
#define OLDEST_DRIVER "CUDA 11.8, driver 520"

struct mo_cuda_functions mo_cuda;

static bool find_function(void *library, const char *symbol, void *function, char *why_not,
                          size_t size) {
    void *address = dlsym(library, symbol);
    if (!address)
        snprintf(why_not, size,
                 "the NVIDIA driver is too old, its %s has no %s; " OLDEST_DRIVER
                 " or later is needed",
                 LIBRARY, symbol);
    memcpy(function, &address, sizeof address); // C has no conversion to a pointer to a function
    return address != NULL;
}

static bool find_functions(void *library, char *why_not, size_t size) {
#define FIND(name, symbol, parameters)                                                             \
    if (!find_function(library, symbol, &mo_cuda.name, why_not, size))                             \
        return false;
    MO_CUDA_FUNCTIONS(FIND)
    return true;
}

static bool is_recent(char *why_not, size_t size) {
    int version = 0;
    char text[256];
    const CUresult result = mo_cuda.cuDriverGetVersion(&version);
    if (result != CUDA_SUCCESS)
        snprintf(why_not, size, "the NVIDIA driver does not tell its version: %s",
                 mo_cuda_error_text(result, text, sizeof text));
    else if (version < OLDEST_VERSION)
        snprintf(why_not, size,
                 "the NVIDIA driver is too old, for CUDA %d.%d; " OLDEST_DRIVER
                 " or later is needed",
                 version / 1000, version % 1000 / 10);
    return result == CUDA_SUCCESS && version >= OLDEST_VERSION;
}

bool mo_cuda_load(char *why_not, size_t size) {
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *error = dlerror();
        snprintf(why_not, size, "there is no NVIDIA driver (%s)", error ? error : LIBRARY);
        return false;
    }
    if (find_functions(library, why_not, size) && is_recent(why_not, size))
        return true;
    dlclose(library);
    return false;
}

const char *mo_cuda_error_text(CUresult error, char *text, size_t size) {
    const char *name = NULL, *description = NULL;
    if (mo_cuda.cuGetErrorName(error, &name) != CUDA_SUCCESS || !name)
        snprintf(text, size, "error %d", error);
    else if (mo_cuda.cuGetErrorString(error, &description) != CUDA_SUCCESS || !description)
        snprintf(text, size, "%s", name);
    else
        snprintf(text, size, "%s, %s", name, description);
    return text;
}

mo_status mo_cuda_check(CUresult result, const char *call) {
    char text[256];
    if (result == CUDA_SUCCESS)
        return MO_OK;
    return mo_fail(result == CUDA_ERROR_OUT_OF_MEMORY ? MO_OUT_OF_MEMORY : MO_DEVICE_ERROR,
                   "CUDA: %s failed: %s", call, mo_cuda_error_text(result, text, sizeof text));
}
