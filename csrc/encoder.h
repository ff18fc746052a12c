// The encoder: bindings and dispatches, recorded for one device.

#ifndef MLXOPS_ENCODER_H
#define MLXOPS_ENCODER_H

#include "mlxops.h"
#include "registry.h"

// Sizes in threads or threadgroups along x, y, z.
typedef struct mo_size {
    uint64_t x, y, z;
} mo_size;

typedef struct mo_binding {
    mo_buffer *buffer; // NULL: bytes, or nothing
    size_t offset;
    size_t size; // of the range from offset on
    size_t n_bytes;
    _Alignas(8) unsigned char bytes[MO_MAX_BYTES];
} mo_binding;

// One recorded run of a pipeline.
struct mo_dispatch {
    const mo_pipeline *pipeline;
    mo_binding arguments[MO_MAX_ARGUMENTS];
    bool starts_command_buffer; // the dispatches before it fill one
    bool by_threadgroups;       // whether grid counts threadgroups or threads
    mo_size grid;
    mo_size threads_per_threadgroup;
};

// The pipeline of the dispatches that follow, and a fresh set of arguments.
mo_status mo_encoder_set_pipeline(mo_encoder *encoder, const mo_pipeline *pipeline);

// Argument `index` is `size` bytes of the buffer from offset on. The encoder keeps a reference
// until it is freed.
mo_status mo_encoder_set_buffer(mo_encoder *encoder, mo_buffer *buffer, size_t offset, size_t size,
                                size_t index);

// Argument `index` is a copy of n_bytes <= MO_MAX_BYTES bytes.
mo_status mo_encoder_set_bytes(mo_encoder *encoder, const void *bytes, size_t n_bytes,
                               size_t index);

// Record a dispatch of the pipeline over a grid of threads, or of threadgroups. All arguments of
// the kernel must have been set, each of its kind.
mo_status mo_encoder_dispatch_threads(mo_encoder *encoder, mo_size threads,
                                      mo_size threads_per_threadgroup);
mo_status mo_encoder_dispatch_threadgroups(mo_encoder *encoder, mo_size threadgroups,
                                           mo_size threads_per_threadgroup);

// How much has been recorded, and forgetting what was recorded since: an operation that fails
// halfway leaves the encoder as it was.
size_t mo_encoder_mark(const mo_encoder *encoder);
void mo_encoder_rewind(mo_encoder *encoder, size_t mark);

// The next dispatch is this share of the work that one command buffer should hold. Where it would
// be too much with the dispatches before, it starts another one. Between two of them a GPU notices
// an interrupt.
void mo_encoder_reserve(mo_encoder *encoder, double share);

// The device that the encoder records for.
mo_device *mo_encoder_device(const mo_encoder *encoder);

// For native kernels: the memory of a buffer argument, the copy of a bytes argument.
void *mo_dispatch_buffer(const mo_dispatch *dispatch, size_t index);
const void *mo_dispatch_bytes(const mo_dispatch *dispatch, size_t index);

#endif
