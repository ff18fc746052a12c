// What a device is to the rest of the core: something that makes pipelines of kernels and runs
// dispatches of them.

#ifndef MLXOPS_DEVICE_H
#define MLXOPS_DEVICE_H

#include "mlxops.h"
#include "registry.h"

typedef struct mo_dispatch mo_dispatch; // encoder.h

struct mo_device {
    const char *name;

    // Whether this process can use the device; otherwise why not. Called once, when the device is
    // first asked for, before anything else. NULL: always.
    bool (*probe)(char *why_not, size_t size);

    void (*describe)(char *text, size_t size);

    // Makes the kernel ready to run: *state is the device's own, NULL if it needs none. It lives as
    // long as the process.
    mo_status (*make_pipeline)(const mo_kernel *kernel, const mo_function_constant *constants,
                               size_t n_constants, void **state);

    // What the device keeps with the memory of a buffer: a handle of pages that it shares, or what
    // it knows of copies in memory of its own. NULL in *wrapper where it keeps nothing. It stays
    // with the memory when the buffer has gone and the next one gets it.
    mo_status (*wrap)(const mo_buffer *buffer, void **wrapper);

    // The memory is to be unmapped: lets go of it and of the wrapper. false if that cannot be, so
    // that the memory has to stay where it is.
    bool (*unwrap)(void *wrapper);

    // A frozen buffer has gone, and the contents with it: drops copies of them. NULL: it makes
    // none.
    void (*forget)(void *wrapper);

    // Gives back the memory that the device keeps for later work. NULL: it keeps none.
    void (*trim)(void);

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

// The CUDA device (cuda/cuda_device.c), in builds for Linux. Its driver is looked for at run time.
extern mo_device mo_cuda_device;

// Has every device that is in use give back what it keeps for later work.
void mo_trim_devices(void);

// A child of a fork must not use the drivers that its parent used.
bool mo_in_forked_child(void);

// Whether the interrupt check says to stop. Called by a device between the parts of long work.
bool mo_interrupted(void);

#endif
