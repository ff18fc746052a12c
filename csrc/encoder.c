// Recording. Nothing runs before the commit, so an encoder that meets an error can be thrown away.

#include "encoder.h"
#include "buffer.h"
#include "device.h"
#include "status.h"

#include <stdlib.h>
#include <string.h>

struct mo_encoder {
    mo_device *device;
    bool committed;
    bool split;    // before the next dispatch
    double filled; // of the current command buffer, 1 being full
    void *in_flight;
    mo_status outcome;   // of the commit, then of the wait
    mo_dispatch current; // the bindings of the next dispatch
    mo_dispatch *dispatches;
    size_t n_dispatches;
    size_t capacity;
};

mo_status mo_encoder_begin(mo_device *device, mo_encoder **result) {
    mo_encoder *encoder = calloc(1, sizeof *encoder);
    if (!encoder)
        return mo_fail_memory(sizeof *encoder);
    encoder->device = device;
    *result = encoder;
    return MO_OK;
}

mo_device *mo_encoder_device(const mo_encoder *encoder) {
    return encoder->device;
}

static mo_status check_open(const mo_encoder *encoder) {
    if (encoder->committed)
        return mo_fail(MO_MISUSE, "the encoder has been committed; begin a new one");
    return MO_OK;
}

static void release_buffers(mo_dispatch *dispatch) {
    for (size_t i = 0; i < MO_MAX_ARGUMENTS; i++) {
        mo_buffer_release(dispatch->arguments[i].buffer);
        dispatch->arguments[i].buffer = NULL;
    }
}

mo_status mo_encoder_set_pipeline(mo_encoder *encoder, const mo_pipeline *pipeline) {
    const mo_status status = check_open(encoder);
    if (status != MO_OK)
        return status;
    if (pipeline->device != encoder->device)
        return mo_fail(MO_MISUSE, "kernel '%s' was made for device '%s', the encoder is for '%s'",
                       pipeline->kernel->name, mo_device_name(pipeline->device),
                       mo_device_name(encoder->device));
    release_buffers(&encoder->current);
    encoder->current = (mo_dispatch){.pipeline = pipeline};
    return MO_OK;
}

// The binding to set, or NULL after a failure.
static mo_binding *argument_at(mo_encoder *encoder, size_t index, mo_status *status) {
    *status = check_open(encoder);
    if (*status == MO_OK && index >= MO_MAX_ARGUMENTS)
        *status = mo_fail(MO_INVALID_VALUE, "argument index %zu; the largest is %d", index,
                          MO_MAX_ARGUMENTS - 1);
    return *status == MO_OK ? &encoder->current.arguments[index] : NULL;
}

mo_status mo_encoder_set_buffer(mo_encoder *encoder, mo_buffer *buffer, size_t offset, size_t size,
                                size_t index) {
    mo_status status;
    mo_binding *binding = argument_at(encoder, index, &status);
    if (!binding)
        return status;
    const size_t there = mo_buffer_size(buffer);
    if (size == 0 || offset > there || size > there - offset)
        return mo_fail(MO_INVALID_VALUE,
                       "%zu bytes from offset %zu for argument %zu, in a buffer of %zu bytes", size,
                       offset, index, there);
    mo_buffer *previous = binding->buffer;
    *binding = (mo_binding){.buffer = mo_buffer_retain(buffer), .offset = offset, .size = size};
    mo_buffer_release(previous);
    return MO_OK;
}

mo_status mo_encoder_set_bytes(mo_encoder *encoder, const void *bytes, size_t n_bytes,
                               size_t index) {
    mo_status status;
    mo_binding *binding = argument_at(encoder, index, &status);
    if (!binding)
        return status;
    if (n_bytes == 0 || n_bytes > MO_MAX_BYTES)
        return mo_fail(MO_INVALID_VALUE, "argument %zu of %zu bytes; 1 to %d are possible", index,
                       n_bytes, MO_MAX_BYTES);
    mo_buffer_release(binding->buffer);
    *binding = (mo_binding){.n_bytes = n_bytes};
    memcpy(binding->bytes, bytes, n_bytes);
    return MO_OK;
}

static mo_status check_argument(const mo_kernel *kernel, const mo_binding *binding, size_t index) {
    const mo_argument *argument = &kernel->arguments[index];
    if (argument->kind != MO_ARGUMENT_BYTES && !binding->buffer)
        return mo_fail(MO_MISUSE, "argument %zu of kernel '%s' is a buffer, and none is set", index,
                       kernel->name);
    if (argument->kind == MO_ARGUMENT_BYTES && binding->n_bytes != argument->bytes)
        return mo_fail(MO_MISUSE, "argument %zu of kernel '%s' is %zu bytes, but %zu are set",
                       index, kernel->name, argument->bytes, binding->n_bytes);
    if (argument->kind == MO_ARGUMENT_OUTPUT && mo_buffer_is_frozen(binding->buffer))
        return mo_fail(MO_MISUSE,
                       "argument %zu of kernel '%s' is written, but its buffer is frozen", index,
                       kernel->name);
    return MO_OK;
}

static mo_status check_dispatch(const mo_encoder *encoder, mo_size grid, mo_size threads) {
    mo_status status = check_open(encoder);
    if (status != MO_OK)
        return status;
    const mo_pipeline *pipeline = encoder->current.pipeline;
    if (!pipeline)
        return mo_fail(MO_MISUSE, "a dispatch needs a pipeline");
    if (!grid.x || !grid.y || !grid.z || !threads.x || !threads.y || !threads.z)
        return mo_fail(MO_INVALID_VALUE, "the grid of kernel '%s' is empty",
                       pipeline->kernel->name);
    for (size_t i = 0; i < pipeline->kernel->n_arguments && status == MO_OK; i++)
        status = check_argument(pipeline->kernel, &encoder->current.arguments[i], i);
    return status;
}

static mo_status grow(mo_encoder *encoder) {
    const size_t capacity = encoder->capacity ? 2 * encoder->capacity : 1;
    mo_dispatch *dispatches = realloc(encoder->dispatches, capacity * sizeof *dispatches);
    if (!dispatches)
        return mo_fail_memory(capacity * sizeof *dispatches);
    encoder->dispatches = dispatches;
    encoder->capacity = capacity;
    return MO_OK;
}

static mo_status record(mo_encoder *encoder, bool by_threadgroups, mo_size grid, mo_size threads) {
    mo_status status = check_dispatch(encoder, grid, threads);
    if (status == MO_OK && encoder->n_dispatches == encoder->capacity)
        status = grow(encoder);
    if (status != MO_OK)
        return status;
    mo_dispatch *dispatch = &encoder->dispatches[encoder->n_dispatches++];
    *dispatch = encoder->current;
    dispatch->starts_command_buffer = encoder->split;
    dispatch->by_threadgroups = by_threadgroups;
    dispatch->grid = grid;
    dispatch->threads_per_threadgroup = threads;
    for (size_t i = 0; i < MO_MAX_ARGUMENTS; i++)
        if (dispatch->arguments[i].buffer)
            mo_buffer_retain(dispatch->arguments[i].buffer);
    encoder->split = false;
    return MO_OK;
}

mo_status mo_encoder_dispatch_threads(mo_encoder *encoder, mo_size threads,
                                      mo_size threads_per_threadgroup) {
    return record(encoder, false, threads, threads_per_threadgroup);
}

mo_status mo_encoder_dispatch_threadgroups(mo_encoder *encoder, mo_size threadgroups,
                                           mo_size threads_per_threadgroup) {
    return record(encoder, true, threadgroups, threads_per_threadgroup);
}

size_t mo_encoder_mark(const mo_encoder *encoder) {
    return encoder->n_dispatches;
}

void mo_encoder_rewind(mo_encoder *encoder, size_t mark) {
    while (encoder->n_dispatches > mark)
        release_buffers(&encoder->dispatches[--encoder->n_dispatches]);
    encoder->split = false;
}

void mo_encoder_reserve(mo_encoder *encoder, double share) {
    if (encoder->n_dispatches > 0 && encoder->filled + share > 1) {
        encoder->split = true;
        encoder->filled = 0;
    }
    encoder->filled += share;
}

mo_status mo_encoder_commit(mo_encoder *encoder) {
    const mo_status status = check_open(encoder);
    if (status != MO_OK)
        return status;
    encoder->committed = true;
    encoder->outcome =
        encoder->device->commit(encoder->dispatches, encoder->n_dispatches, &encoder->in_flight);
    return encoder->outcome;
}

mo_status mo_encoder_wait(mo_encoder *encoder) {
    if (!encoder->committed)
        return mo_fail(MO_MISUSE, "there is nothing to wait for before the encoder's commit");
    if (encoder->in_flight) {
        void *in_flight = encoder->in_flight;
        encoder->in_flight = NULL;
        encoder->outcome = encoder->device->finish(in_flight, false);
    }
    return encoder->outcome;
}

void mo_encoder_free(mo_encoder *encoder) {
    if (!encoder)
        return;
    if (encoder->in_flight) // its buffers may not go before the device is done with them
        encoder->device->finish(encoder->in_flight, true);
    release_buffers(&encoder->current);
    for (size_t i = 0; i < encoder->n_dispatches; i++)
        release_buffers(&encoder->dispatches[i]);
    free(encoder->dispatches);
    free(encoder);
}

void *mo_dispatch_buffer(const mo_dispatch *dispatch, size_t index) {
    const mo_binding *binding = &dispatch->arguments[index];
    return (unsigned char *)mo_buffer_contents(binding->buffer) + binding->offset;
}

const void *mo_dispatch_bytes(const mo_dispatch *dispatch, size_t index) {
    return dispatch->arguments[index].bytes;
}
