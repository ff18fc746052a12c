// Kernels by name, and the pipelines made of them.

#ifndef MLXOPS_REGISTRY_H
#define MLXOPS_REGISTRY_H

#include "mlxops.h"

#define MO_MAX_ARGUMENTS 8
#define MO_MAX_BYTES 64
#define MO_MAX_FUNCTION_CONSTANTS 4

typedef struct mo_dispatch mo_dispatch; // encoder.h

// What the argument of one index is to a kernel.
typedef struct mo_argument {
    enum {
        MO_ARGUMENT_INPUT = 1, // a buffer that is only read
        MO_ARGUMENT_OUTPUT,    // a buffer of which the whole bound range is written
        MO_ARGUMENT_BYTES,
    } kind;
    size_t bytes; // size of a MO_ARGUMENT_BYTES
} mo_argument;

// A kernel: one name, an implementation for each kind of device. Static; never freed.
typedef struct mo_kernel {
    const char *name;
    const char *shader; // of its MSL source: shaders/<shader>.metal
    mo_status (*native)(const mo_dispatch *dispatch);
    size_t n_arguments;
    mo_argument arguments[MO_MAX_ARGUMENTS];
} mo_kernel;

// An int function constant. (No kernel has one of another type.)
typedef struct mo_function_constant {
    uint32_t index;
    int32_t value;
} mo_function_constant;

// A kernel made ready for a device with given function constants.
typedef struct mo_pipeline {
    const mo_kernel *kernel;
    mo_device *device;
    mo_function_constant constants[MO_MAX_FUNCTION_CONSTANTS];
    size_t n_constants;
    void *state; // the device's
} mo_pipeline;

// Makes a kernel known by its name. Registering the same kernel again does nothing; another one of
// the same name is MO_MISUSE.
mo_status mo_register_kernel(const mo_kernel *kernel);

// The kernel of that name. MO_INVALID_VALUE if there is none.
mo_status mo_find_kernel(const char *name, const mo_kernel **kernel);

// The pipeline of a kernel: made on first use, once for each device, name and set of constants,
// and kept as long as the process.
mo_status mo_find_pipeline(mo_device *device, const char *name,
                           const mo_function_constant *constants, size_t n_constants,
                           const mo_pipeline **pipeline);

// Registers a kernel when the library is loaded.
#define MO_REGISTER_KERNEL(kernel)                                                                 \
    __attribute__((constructor)) static void register_##kernel(void) {                             \
        mo_register_kernel(&kernel);                                                               \
    }

// The MSL source of shaders/<shader>.metal with its includes in place, embedded by the build; NULL
// if there is no such file.
const char *mo_shader_source(const char *shader);

// The same shader as PTX for CUDA, made by tools/make_ptx.py: an entry for each kernel, its
// arguments in order. NULL if there is none, and in builds for other systems than Linux.
const char *mo_shader_ptx(const char *shader);

#endif
