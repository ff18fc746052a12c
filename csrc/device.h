// What a device is to the rest of the core: something that makes pipelines of kernels and runs
// dispatches of them.

#ifndef MLXOPS_DEVICE_H
#define MLXOPS_DEVICE_H

#include "mlxops.h"
#include "registry.h"

typedef struct mo_dispatch mo_dispatch; // encoder.h

struct mo_device {
    const char *name;

    // Whether this process can use the device; otherwise why not. Called once, before anything
    // else. NULL: always.
    bool (*probe)(char *why_not, size_t size);

    void (*describe)(char *text, size_t size);

    // Makes the kernel ready to run: *state is the device's own, NULL if it needs none. It lives as
    // long as the process.
    mo_status (*make_pipeline)(const mo_kernel *kernel, const mo_function_constant *constants,
                               size_t n_constants, void **state);

    // A handle of memory of whole pages for kernels, NULL in *wrapper where the device cannot share
    // it as it is. NULL for a device that reads any memory.
    mo_status (*wrap)(void *memory, size_t size, void **wrapper);
    void (*unwrap)(void *wrapper);

    // Starts the dispatches; each sees what the ones before it wrote. They stay where they are
    // until finish. *in_flight is handed to it, NULL if the work is done already.
    mo_status (*commit)(const mo_dispatch *dispatches, size_t n, void **in_flight);

    // Returns when the device is idle again, and frees in_flight. The rest of the work is done
    // before, or, if it is to be discarded, left undone.
    mo_status (*finish)(void *in_flight, bool discard);
};

// The CPU device (cpu/cpu_device.c).
extern mo_device mo_cpu_device;

// The Metal device (metal/metal_device.m), in builds for macOS.
extern mo_device mo_metal_device;

// A child of a fork must not use the drivers that its parent used.
bool mo_in_forked_child(void);

// Whether the interrupt check says to stop. Called by a device between the parts of long work.
bool mo_interrupted(void);

#endif
