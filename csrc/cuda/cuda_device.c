// The CUDA device: the kernels of the Metal device, translated to PTX by the build and compiled by
// the driver. Work is submitted one command buffer at a time, so that an interrupt is noticed
// between two of them.

#include "buffer.h"
#include "cuda/context.h"
#include "cuda/memory.h"
#include "cuda/staging.h"
#include "device.h"
#include "encoder.h"
#include "status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The most blocks of a grid along y, and along z. (Along x there can be 2^31 - 1.)
#define MAX_BLOCKS_YZ 65535
#define MAX_BLOCKS_X INT32_MAX

static bool probe(char *why_not, size_t size) {
    if (mo_in_forked_child()) {
        snprintf(why_not, size, "a forked process cannot use CUDA");
        return false;
    }
    return mo_cuda_load(why_not, size) && mo_cuda_find_gpu(why_not, size);
}

static void describe(char *text, size_t size) {
    snprintf(text, size, "%s", mo_cuda_gpu_text());
}

// ---- Pipelines ---------------------------------------------------------------------------------

// The compiled shaders, a module each. Guarded by the registry, which makes one pipeline at a time.
typedef struct compiled_shader {
    const char *name;
    CUmodule module;
    struct compiled_shader *next;
} compiled_shader;

static compiled_shader *compiled_shaders;

// The driver compiles the PTX, or has done so before and kept the result.
static mo_status load_module(const mo_kernel *kernel, CUmodule *module) {
    char call[128], text[512], log[512] = "";
    const char *ptx = kernel->shader ? mo_shader_ptx(kernel->shader) : NULL;
    if (!ptx)
        return mo_fail(MO_DEVICE_ERROR, "CUDA: there is no PTX of kernel '%s'", kernel->name);
    int options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)(sizeof log - 1)};
    const CUresult result = mo_cuda.cuModuleLoadDataEx(module, ptx, 2, options, values);
    snprintf(call, sizeof call, "cuModuleLoadDataEx of shader '%s'", kernel->shader);
    const mo_status status = mo_cuda_check(result, call);
    if (status == MO_OK || !*log)
        return status;
    snprintf(text, sizeof text, "%s", mo_status_message());
    return mo_fail(status, "%s: %s", text, log);
}

static mo_status compile(const mo_kernel *kernel, compiled_shader **result) {
    compiled_shader *shader = calloc(1, sizeof *shader);
    if (!shader)
        return mo_fail_memory(sizeof *shader);
    const mo_status status = load_module(kernel, &shader->module);
    if (status != MO_OK) {
        free(shader);
        return status;
    }
    shader->name = kernel->shader;
    shader->next = compiled_shaders;
    compiled_shaders = shader;
    *result = shader;
    return MO_OK;
}

static mo_status find_function(const mo_kernel *kernel, CUfunction *function) {
    char call[128];
    compiled_shader *shader = compiled_shaders;
    while (shader && strcmp(shader->name, kernel->shader) != 0)
        shader = shader->next;
    const mo_status status = shader ? MO_OK : compile(kernel, &shader);
    if (status != MO_OK)
        return status;
    snprintf(call, sizeof call, "cuModuleGetFunction of kernel '%s'", kernel->name);
    return mo_cuda_check(mo_cuda.cuModuleGetFunction(function, shader->module, kernel->name), call);
}

static mo_status make_pipeline(const mo_kernel *kernel, const mo_function_constant *constants,
                               size_t n_constants, void **state) {
    (void)constants; // they only repeat what the params say
    (void)n_constants;
    CUfunction function = NULL;
    mo_status status = mo_cuda_enter();
    if (status != MO_OK)
        return status;
    status = find_function(kernel, &function);
    mo_cuda_leave();
    *state = function;
    return status;
}

// ---- Launches ----------------------------------------------------------------------------------

static uint64_t ceil_div(uint64_t a, uint64_t b) {
    return a / b + (a % b != 0);
}

// The grid in threadgroups. One that is too long along y goes on along z: a translated kernel takes
// blockIdx.y + gridDim.y * blockIdx.z for y.
static mo_status blocks_of(const mo_dispatch *dispatch, mo_size *blocks) {
    const mo_size threads = dispatch->threads_per_threadgroup;
    mo_size grid = dispatch->grid;
    if (!dispatch->by_threadgroups)
        grid = (mo_size){ceil_div(grid.x, threads.x), ceil_div(grid.y, threads.y),
                         ceil_div(grid.z, threads.z)};
    const uint64_t z = ceil_div(grid.y, MAX_BLOCKS_YZ);
    if (grid.x > MAX_BLOCKS_X || z > MAX_BLOCKS_YZ || grid.z != 1)
        return mo_fail(
            MO_DEVICE_ERROR,
            "CUDA: the grid of kernel '%s' is too large: %llu x %llu x %llu threadgroups",
            dispatch->pipeline->kernel->name, (unsigned long long)grid.x,
            (unsigned long long)grid.y, (unsigned long long)grid.z);
    *blocks = (mo_size){grid.x, ceil_div(grid.y, z), z};
    return MO_OK;
}

static mo_status launch(const mo_dispatch *dispatch, mo_cuda_argument *places) {
    const mo_kernel *kernel = dispatch->pipeline->kernel;
    const mo_size threads = dispatch->threads_per_threadgroup;
    mo_size blocks = {0, 0, 0};
    const mo_status status = blocks_of(dispatch, &blocks);
    if (status != MO_OK)
        return status;
    void *arguments[MO_MAX_ARGUMENTS];
    for (size_t i = 0; i < kernel->n_arguments; i++)
        arguments[i] = dispatch->arguments[i].buffer ? (void *)&places[i].address
                                                     : (void *)dispatch->arguments[i].bytes;
    char call[128];
    snprintf(call, sizeof call, "cuLaunchKernel of kernel '%s'", kernel->name);
    return mo_cuda_check(
        mo_cuda.cuLaunchKernel(dispatch->pipeline->state, (unsigned)blocks.x, (unsigned)blocks.y,
                               (unsigned)blocks.z, (unsigned)threads.x, (unsigned)threads.y,
                               (unsigned)threads.z, 0, mo_cuda_stream(), arguments, NULL),
        call);
}

// ---- Work --------------------------------------------------------------------------------------

typedef struct work {
    mo_cuda_staging staging;
    size_t next; // of the dispatches that have not been submitted
} work;

// Submits the next command buffer: everything up to the next that starts another.
static mo_status submit(work *w) {
    const mo_dispatch *dispatches = w->staging.dispatches;
    mo_status status;
    do {
        status = launch(&dispatches[w->next], &w->staging.arguments[w->next * MO_MAX_ARGUMENTS]);
        w->next++;
    } while (status == MO_OK && w->next < w->staging.n &&
             !dispatches[w->next].starts_command_buffer);
    return status;
}

static void free_work(work *w) {
    mo_cuda_unstage(&w->staging);
    free(w);
}

// With the context entered.
static mo_status start(const mo_dispatch *dispatches, size_t n, void **in_flight) {
    work *w = calloc(1, sizeof *w);
    if (!w)
        return mo_fail_memory(sizeof *w);
    mo_status status = mo_cuda_stage(&w->staging, dispatches, n);
    if (status != MO_OK) {
        free(w);
        return status;
    }
    status = submit(w);
    if (status != MO_OK) {
        mo_cuda_wait_quietly();
        free_work(w);
        return status;
    }
    *in_flight = w;
    return MO_OK;
}

static mo_status commit(const mo_dispatch *dispatches, size_t n, void **in_flight) {
    *in_flight = NULL;
    mo_status status = mo_cuda_enter();
    if (status != MO_OK)
        return status;
    if (n > 0)
        status = start(dispatches, n, in_flight);
    mo_cuda_leave();
    return status;
}

// The rest of the work, and the results. With the context entered.
static mo_status complete(work *w) {
    mo_status status = MO_OK;
    while (w->next < w->staging.n && status == MO_OK) {
        status = mo_cuda_wait();
        if (status == MO_OK && mo_interrupted())
            status = mo_fail(MO_INTERRUPTED, "interrupted");
        if (status == MO_OK)
            status = submit(w);
    }
    return status == MO_OK ? mo_cuda_fetch_results(&w->staging) : status;
}

static mo_status finish(void *in_flight, bool discard) {
    work *w = in_flight;
    mo_status status = mo_cuda_enter();
    if (mo_in_forked_child()) // what is in flight belongs to the parent
        return status;
    if (status == MO_OK) {
        status = discard ? MO_OK : complete(w);
        if (status == MO_OK)
            status = mo_cuda_wait();
        else
            mo_cuda_wait_quietly();
        mo_cuda_leave();
    } else if (mo_cuda_enter_again()) {
        mo_cuda_wait_quietly();
        mo_cuda_leave();
    }
    free_work(w);
    return status;
}

mo_device mo_cuda_device = {
    .name = "cuda",
    .probe = probe,
    .describe = describe,
    .make_pipeline = make_pipeline,
    .wrap = mo_cuda_wrap,
    .unwrap = mo_cuda_unwrap,
    .forget = mo_cuda_forget,
    .trim = mo_cuda_trim,
    .commit = commit,
    .finish = finish,
};
