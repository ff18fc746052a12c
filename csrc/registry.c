// The kernel registry and the pipeline cache. Both only grow, and are short: lists.

#include "registry.h"
#include "device.h"
#include "status.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct kernel_entry {
    const mo_kernel *kernel;
    struct kernel_entry *next;
} kernel_entry;

typedef struct pipeline_entry {
    mo_pipeline pipeline;
    struct pipeline_entry *next;
} pipeline_entry;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static kernel_entry *kernels;
static pipeline_entry *pipelines;

static const mo_kernel *kernel_named(const char *name) {
    for (const kernel_entry *entry = kernels; entry; entry = entry->next)
        if (strcmp(entry->kernel->name, name) == 0)
            return entry->kernel;
    return NULL;
}

static mo_status add_kernel(const mo_kernel *kernel) {
    const mo_kernel *known = kernel_named(kernel->name);
    if (known == kernel)
        return MO_OK;
    if (known)
        return mo_fail(MO_MISUSE, "another kernel named '%s' is registered", kernel->name);
    kernel_entry *entry = malloc(sizeof *entry);
    if (!entry)
        return mo_fail_memory(sizeof *entry);
    *entry = (kernel_entry){.kernel = kernel, .next = kernels};
    kernels = entry;
    return MO_OK;
}

mo_status mo_register_kernel(const mo_kernel *kernel) {
    pthread_mutex_lock(&lock);
    const mo_status status = add_kernel(kernel);
    pthread_mutex_unlock(&lock);
    return status;
}

// Called with the lock held.
static mo_status find_kernel(const char *name, const mo_kernel **kernel) {
    *kernel = kernel_named(name);
    return *kernel ? MO_OK : mo_fail(MO_INVALID_VALUE, "there is no kernel named '%s'", name);
}

mo_status mo_find_kernel(const char *name, const mo_kernel **kernel) {
    pthread_mutex_lock(&lock);
    const mo_status status = find_kernel(name, kernel);
    pthread_mutex_unlock(&lock);
    return status;
}

static bool is_pipeline(const mo_pipeline *pipeline, const mo_device *device, const char *name,
                        const mo_function_constant *constants, size_t n_constants) {
    if (pipeline->device != device || strcmp(pipeline->kernel->name, name) != 0 ||
        pipeline->n_constants != n_constants)
        return false;
    for (size_t i = 0; i < n_constants; i++)
        if (pipeline->constants[i].index != constants[i].index ||
            pipeline->constants[i].value != constants[i].value)
            return false;
    return true;
}

static mo_status add_pipeline(mo_device *device, const char *name,
                              const mo_function_constant *constants, size_t n_constants,
                              const mo_pipeline **pipeline) {
    const mo_kernel *kernel;
    mo_status status = find_kernel(name, &kernel);
    if (status != MO_OK)
        return status;
    if (n_constants > MO_MAX_FUNCTION_CONSTANTS)
        return mo_fail(MO_INVALID_VALUE, "%zu function constants, at most %d are supported",
                       n_constants, MO_MAX_FUNCTION_CONSTANTS);
    pipeline_entry *entry = calloc(1, sizeof *entry);
    if (!entry)
        return mo_fail_memory(sizeof *entry);
    entry->pipeline.kernel = kernel;
    entry->pipeline.device = device;
    entry->pipeline.n_constants = n_constants;
    for (size_t i = 0; i < n_constants; i++)
        entry->pipeline.constants[i] = constants[i];
    status = device->make_pipeline(kernel, constants, n_constants, &entry->pipeline.state);
    if (status != MO_OK) {
        free(entry);
        return status;
    }
    entry->next = pipelines;
    pipelines = entry;
    *pipeline = &entry->pipeline;
    return MO_OK;
}

mo_status mo_find_pipeline(mo_device *device, const char *name,
                           const mo_function_constant *constants, size_t n_constants,
                           const mo_pipeline **pipeline) {
    mo_status status = MO_OK;
    pthread_mutex_lock(&lock);
    const pipeline_entry *entry = pipelines;
    while (entry && !is_pipeline(&entry->pipeline, device, name, constants, n_constants))
        entry = entry->next;
    if (entry)
        *pipeline = &entry->pipeline;
    else
        status = add_pipeline(device, name, constants, n_constants, pipeline);
    pthread_mutex_unlock(&lock);
    return status;
}

// The lists must be whole, and the lock free, in a forked child.

static void lock_registry(void) {
    pthread_mutex_lock(&lock);
}

static void unlock_registry(void) {
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void survive_fork(void) {
    pthread_atfork(lock_registry, unlock_registry, unlock_registry);
}
