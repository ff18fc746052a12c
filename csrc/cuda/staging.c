#include "cuda/staging.h"
#include "buffer.h"
#include "cuda/context.h"
#include "status.h"

#include <stdlib.h>
#include <string.h>

// One buffer that is not frozen, and the ranges of it that the commit uses.
struct mo_cuda_staged {
    mo_buffer *buffer;
    mo_ranges used;    // each has a place of its own in the block
    mo_ranges valid;   // on the GPU: moved there, or written before
    mo_ranges moved;   // to the GPU, at the start
    mo_ranges written; // by dispatches
    size_t *places;    // of the used ranges, from the start of the block on
    mo_cuda_staged *next;
};

static size_t n_arguments(const mo_dispatch *dispatch) {
    return dispatch->pipeline->kernel->n_arguments;
}

static mo_cuda_argument *argument_at(const mo_cuda_staging *staging, size_t i, size_t j) {
    return &staging->arguments[i * MO_MAX_ARGUMENTS + j];
}

static mo_range range_of(const mo_binding *binding) {
    return (mo_range){binding->offset, binding->offset + binding->size};
}

// ---- What is used, read and written ------------------------------------------------------------

static mo_status stage_buffer(mo_cuda_staging *staging, mo_buffer *buffer,
                              mo_cuda_staged **result) {
    mo_cuda_staged *staged = staging->staged;
    while (staged && staged->buffer != buffer)
        staged = staged->next;
    if (!staged) {
        staged = calloc(1, sizeof *staged);
        if (!staged)
            return mo_fail_memory(sizeof *staged);
        staged->buffer = buffer;
        staged->next = staging->staged;
        staging->staged = staged;
    }
    *result = staged;
    return MO_OK;
}

// Notes that a dispatch reads or writes a range, after those before it.
static mo_status add_use(mo_cuda_staged *staged, mo_range range, bool is_output) {
    const bool is_valid = mo_ranges_find(&staged->valid, range) < staged->valid.n;
    mo_status status = mo_ranges_add(&staged->used, range);
    if (status == MO_OK && is_output)
        status = mo_ranges_add(&staged->written, range);
    if (status == MO_OK && !is_output && !is_valid)
        status = mo_ranges_add(&staged->moved, range);
    if (status == MO_OK)
        status = mo_ranges_add(&staged->valid, range);
    return status;
}

static mo_status add_argument(mo_cuda_staging *staging, size_t i, size_t j) {
    const mo_binding *binding = &staging->dispatches[i].arguments[j];
    mo_cuda_argument *argument = argument_at(staging, i, j);
    if (!binding->buffer)
        return MO_OK;
    if (mo_buffer_is_frozen(binding->buffer))
        return mo_cuda_hold_copy(binding->buffer, range_of(binding), &argument->copy);
    const mo_status status = stage_buffer(staging, binding->buffer, &argument->staged);
    if (status != MO_OK)
        return status;
    const mo_kernel *kernel = staging->dispatches[i].pipeline->kernel;
    return add_use(argument->staged, range_of(binding),
                   kernel->arguments[j].kind == MO_ARGUMENT_OUTPUT);
}

static mo_status add_arguments(mo_cuda_staging *staging) {
    mo_status status = MO_OK;
    for (size_t i = 0; i < staging->n && status == MO_OK; i++)
        for (size_t j = 0; j < n_arguments(&staging->dispatches[i]) && status == MO_OK; j++)
            status = add_argument(staging, i, j);
    return status;
}

// ---- Places ------------------------------------------------------------------------------------

// Gives each used range a place from *end on, with the remainder that it has in its buffer.
static mo_status place(mo_cuda_staged *staged, size_t *end) {
    staged->places = malloc(staged->used.n * sizeof *staged->places);
    if (!staged->places)
        return mo_fail_memory(staged->used.n * sizeof *staged->places);
    for (size_t i = 0; i < staged->used.n; i++) {
        const mo_range range = staged->used.items[i];
        const size_t remainder = range.start % MO_CUDA_ALIGNMENT;
        const size_t aligned = (*end + MO_CUDA_ALIGNMENT - 1) / MO_CUDA_ALIGNMENT;
        staged->places[i] = aligned * MO_CUDA_ALIGNMENT + remainder;
        if (__builtin_add_overflow(staged->places[i], range.end - range.start, end))
            return mo_fail_memory(SIZE_MAX);
    }
    return MO_OK;
}

static mo_status make_places(mo_cuda_staging *staging) {
    size_t end = 0;
    for (mo_cuda_staged *staged = staging->staged; staged; staged = staged->next) {
        const mo_status status = place(staged, &end);
        if (status != MO_OK)
            return status;
    }
    return end > 0 ? mo_cuda_take_block(end, &staging->block) : MO_OK;
}

// Where a part of a used range is on the GPU.
static CUdeviceptr address_of(const mo_cuda_staging *staging, const mo_cuda_staged *staged,
                              mo_range range) {
    const size_t i = mo_ranges_find(&staged->used, range);
    return staging->block->memory + staged->places[i] + (range.start - staged->used.items[i].start);
}

static void find_addresses(mo_cuda_staging *staging) {
    for (size_t i = 0; i < staging->n; i++)
        for (size_t j = 0; j < n_arguments(&staging->dispatches[i]); j++) {
            const mo_binding *binding = &staging->dispatches[i].arguments[j];
            mo_cuda_argument *argument = argument_at(staging, i, j);
            if (argument->copy)
                argument->address = mo_cuda_copied(argument->copy, binding->offset);
            else if (argument->staged)
                argument->address = address_of(staging, argument->staged, range_of(binding));
        }
}

// ---- Moving ------------------------------------------------------------------------------------

static mo_status move_there(const mo_cuda_staging *staging, const mo_cuda_staged *staged,
                            mo_range range) {
    const unsigned char *contents = mo_buffer_contents(staged->buffer);
    mo_count_copy(range.end - range.start, 0);
    return mo_cuda_check(mo_cuda.cuMemcpyHtoDAsync(address_of(staging, staged, range),
                                                   contents + range.start, range.end - range.start,
                                                   mo_cuda_stream()),
                         "cuMemcpyHtoDAsync");
}

static mo_status move_back(const mo_cuda_staging *staging, const mo_cuda_staged *staged,
                           mo_range range) {
    unsigned char *contents = mo_buffer_contents(staged->buffer);
    mo_count_copy(0, range.end - range.start);
    return mo_cuda_check(mo_cuda.cuMemcpyDtoHAsync(contents + range.start,
                                                   address_of(staging, staged, range),
                                                   range.end - range.start, mo_cuda_stream()),
                         "cuMemcpyDtoHAsync");
}

static mo_status move_operands(const mo_cuda_staging *staging) {
    for (const mo_cuda_staged *staged = staging->staged; staged; staged = staged->next) {
        mo_status status = mo_cuda_register(staged->buffer);
        for (size_t i = 0; i < staged->moved.n && status == MO_OK; i++)
            status = move_there(staging, staged, staged->moved.items[i]);
        if (status != MO_OK)
            return status;
    }
    return MO_OK;
}

// ---- A commit's staging ------------------------------------------------------------------------

mo_status mo_cuda_stage(mo_cuda_staging *staging, const mo_dispatch *dispatches, size_t n) {
    *staging = (mo_cuda_staging){.dispatches = dispatches, .n = n};
    staging->arguments = calloc(n * MO_MAX_ARGUMENTS, sizeof *staging->arguments);
    if (!staging->arguments)
        return mo_fail_memory(n * MO_MAX_ARGUMENTS * sizeof *staging->arguments);
    mo_status status = add_arguments(staging);
    if (status == MO_OK)
        status = make_places(staging);
    if (status == MO_OK) {
        find_addresses(staging);
        status = move_operands(staging);
    }
    if (status != MO_OK) {
        mo_cuda_wait_quietly();
        mo_cuda_unstage(staging);
    }
    return status;
}

mo_status mo_cuda_fetch_results(const mo_cuda_staging *staging) {
    mo_status status = MO_OK;
    for (const mo_cuda_staged *staged = staging->staged; staged; staged = staged->next)
        for (size_t i = 0; i < staged->written.n && status == MO_OK; i++)
            status = move_back(staging, staged, staged->written.items[i]);
    return status;
}

static void free_staged(mo_cuda_staged *staged) {
    mo_ranges_free(&staged->used);
    mo_ranges_free(&staged->valid);
    mo_ranges_free(&staged->moved);
    mo_ranges_free(&staged->written);
    free(staged->places);
    free(staged);
}

void mo_cuda_unstage(mo_cuda_staging *staging) {
    while (staging->staged) {
        mo_cuda_staged *staged = staging->staged;
        staging->staged = staged->next;
        free_staged(staged);
    }
    for (size_t i = 0; i < staging->n * MO_MAX_ARGUMENTS; i++)
        mo_cuda_let_go(staging->arguments[i].copy);
    mo_cuda_give_block(staging->block);
    free(staging->arguments);
}
