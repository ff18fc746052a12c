// What a device is to the rest of the core: something that makes pipelines of kernels and runs
// dispatches of them.

#ifndef MLXOPS_DEVICE_H
#define MLXOPS_DEVICE_H

#include "mlxops.h"
#include "registry.h"

typedef struct mo_dispatch mo_dispatch; // encoder.h

struct mo_device {
    const char *name;

    void (*describe)(char *text, size_t size);

    // Makes the kernel ready to run: *state is the device's own, NULL if it needs none. It lives as
    // long as the process.
    mo_status (*make_pipeline)(const mo_kernel *kernel, const mo_function_constant *constants,
                               size_t n_constants, void **state);

    // Starts the dispatches; each sees what the ones before it wrote. *in_flight is handed to wait,
    // NULL if the work is done already.
    mo_status (*commit)(const mo_dispatch *dispatches, size_t n, void **in_flight);

    // Returns when the work is done, and frees in_flight.
    mo_status (*wait)(void *in_flight);
};

// The CPU device (cpu/cpu_device.c).
extern mo_device mo_cpu_device;

#endif
