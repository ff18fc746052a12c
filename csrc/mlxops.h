// mlxops: fused dual Q4_0 projection and QKV split, one result on every device.
//
// The C API. It needs no Python. A call in full:
//
//     mo_encoder *encoder;
//     mo_encoder_begin(mo_default_device(), &encoder);
//     mo_mul_mv_q4_0(encoder, &weight, &x, &out);
//     mo_encoder_commit(encoder);
//     mo_encoder_wait(encoder);
//     mo_encoder_free(encoder);
//
// Every function that returns mo_status leaves a message for the calling thread when it fails. All
// functions may be called from any thread; one encoder belongs to one thread at a time.

#ifndef MLXOPS_H
#define MLXOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- Status ------------------------------------------------------------------------------------

typedef enum mo_status {
    MO_OK = 0,
    MO_INVALID_VALUE, // an argument's value, shape or size
    MO_MISUSE,        // a call at the wrong time, such as an encoder used after its commit
    MO_OUT_OF_MEMORY,
    MO_DEVICE_ERROR, // no such device, or the device failed
    MO_INTERRUPTED,  // the interrupt check asked to stop
} mo_status;

// What the last failed call on this thread has to say. Valid until the next failing call.
const char *mo_status_message(void);

// A function that long operations call now and then, on the thread that waits for them: true makes
// them stop with MO_INTERRUPTED once the device is idle, what they had to write being unspecified.
// NULL, at first, means never.
void mo_set_interrupt_check(bool (*interrupted)(void));

// ---- Devices -----------------------------------------------------------------------------------

typedef struct mo_device mo_device;

// The devices of this process, the preferred one first. The CPU device is always there. Whether a
// GPU is, is found out when it is first asked for.
size_t mo_device_count(void);
mo_device *mo_device_at(size_t index);

// The devices that this build knows and this machine or process cannot use: name and reason of the
// index-th, both valid for good. false if there are no more.
bool mo_device_missing(size_t index, const char **name, const char **reason);

// MO_DEVICE_ERROR, with the reason, if there is no device of that name.
mo_status mo_device_find(const char *name, mo_device **device);

const char *mo_device_name(const mo_device *device);

// What hardware the device runs on, for people. At most size bytes, always terminated.
void mo_device_describe(const mo_device *device, char *text, size_t size);

// One default device per process, for all threads.
mo_device *mo_default_device(void);
void mo_set_default_device(mo_device *device);

// ---- Threads of the CPU device -----------------------------------------------------------------

// The most threads that one operation uses; more are never started, whatever is asked for.
#define MO_MAX_THREADS 256

// How many threads an operation on the CPU device may use: MLXOPS_NUM_THREADS, else the number of
// processors that the process may use (its affinity and its cgroup's quota).
int mo_num_threads(void);

// MO_INVALID_VALUE below 1. Above MO_MAX_THREADS means MO_MAX_THREADS.
mo_status mo_set_num_threads(int64_t n);

// MO_INVALID_VALUE if MLXOPS_NUM_THREADS is set to something that is no number of threads, or
// MLXOPS_CPU_ISA to no instruction set that this build and processor have: it is ignored.
mo_status mo_check_environment(void);

// ---- Buffers -----------------------------------------------------------------------------------

// Memory that every device can use: whole pages, counted references, not tied to a device. Memory
// of freed buffers is kept, up to a limit, for the next ones.
typedef struct mo_buffer mo_buffer;

// A new buffer with one reference. The contents are not initialised. MO_OUT_OF_MEMORY.
mo_status mo_buffer_alloc(size_t size, mo_buffer **buffer);

// A buffer over memory of the caller's, which stays the caller's and must outlive the buffer. It
// may be read-only where it is only read. MO_OUT_OF_MEMORY.
mo_status mo_buffer_borrow(const void *memory, size_t size, mo_buffer **buffer);

// The same over memory that begins at a page and shares its last page with nothing else, such as a
// mapped file: a GPU need not copy it.
mo_status mo_buffer_borrow_pages(const void *memory, size_t size, mo_buffer **buffer);

// Promises that the contents never change again: a device with memory of its own then keeps a copy
// of what it has used, until the buffer is freed or the space is needed. Before the buffer is used.
void mo_buffer_freeze(mo_buffer *buffer);

mo_buffer *mo_buffer_retain(mo_buffer *buffer);
void mo_buffer_release(mo_buffer *buffer); // NULL is allowed

void *mo_buffer_contents(const mo_buffer *buffer);
size_t mo_buffer_size(const mo_buffer *buffer);

// Bytes of freed buffers that wait to be used again, how many they can become, and giving them all
// back to the system, with what the devices keep for later work.
size_t mo_buffer_cache_size(void);
size_t mo_buffer_cache_limit(void);
void mo_buffer_cache_clear(void);

// Bytes that were copied since the process began: into memory that a device can use, and out of it
// into the caller's. Devices count what they move; who copies for an operation counts with
// mo_count_copy.
void mo_copied(uint64_t *in, uint64_t *out);
void mo_count_copy(size_t in, size_t out);

// ---- Operands ----------------------------------------------------------------------------------

// A C-contiguous float32 array in a buffer, offset bytes from its start.
typedef struct mo_array {
    mo_buffer *buffer;
    size_t offset;
    int ndim;
    const int64_t *shape;
} mo_array;

// N rows of K / 32 Q4_0 blocks of 18 bytes, as in a GGUF file, offset bytes from the buffer's
// start.
typedef struct mo_q4_0_matrix {
    mo_buffer *buffer;
    size_t offset;
    int64_t N;
    int64_t K;
} mo_q4_0_matrix;

// Where an operation writes. If buffer is NULL the operation makes a buffer of the right size once
// all its arguments have been found good; the caller releases it. Otherwise shape (which may be
// NULL for a new buffer) must be that of the result.
typedef mo_array mo_result;

// ---- Encoder and kernels -----------------------------------------------------------------------

// Work for one device, recorded and then run as a whole by the commit.
typedef struct mo_encoder mo_encoder;

mo_status mo_encoder_begin(mo_device *device, mo_encoder **encoder);

// Run what was recorded, in order; each operation sees what those before it wrote through the same
// mo_buffer. (Two buffers that were borrowed over one memory are two to a GPU.) Afterwards the
// encoder only takes wait and free. Another encoder that uses its results is committed after its
// wait.
mo_status mo_encoder_commit(mo_encoder *encoder);

// Return when the committed work is done and its results can be read; the failure, where it failed.
mo_status mo_encoder_wait(mo_encoder *encoder);

// Also discards work that was not committed. NULL is allowed.
void mo_encoder_free(mo_encoder *encoder);

// ---- Operations --------------------------------------------------------------------------------
//
// Each checks all its arguments before it records anything: after MO_INVALID_VALUE or
// MO_OUT_OF_MEMORY the encoder holds the work that it held. A result may overlap neither an operand
// nor another result. The encoder keeps references to the buffers until it is freed.

// out[..., n] = x[..., :] . weight[n, :] in the canonical order of additions. x [..., K],
// out [..., N].
mo_status mo_mul_mv_q4_0(mo_encoder *encoder, const mo_q4_0_matrix *weight, const mo_array *x,
                         mo_result *out);

// Two projections of the same x by weights of one shape, in one dispatch; the same bits as two
// calls of mo_mul_mv_q4_0.
mo_status mo_fused_dual_proj_q4_0(mo_encoder *encoder, const mo_q4_0_matrix *weight_a,
                                  const mo_q4_0_matrix *weight_b, const mo_array *x,
                                  mo_result *out_a, mo_result *out_b);

// qkv [..., q_sp + k_sp + v_sp] into q [..., q_sp], k [..., k_sp] and v [..., v_sp].
mo_status mo_qkv_split_f32(mo_encoder *encoder, const mo_array *qkv, int64_t q_sp, int64_t k_sp,
                           int64_t v_sp, mo_result *q, mo_result *k, mo_result *v);

// ---- The Q4_0 format ---------------------------------------------------------------------------

#define MO_Q4_0_BLOCK_ELEMENTS 32
#define MO_Q4_0_BLOCK_BYTES 18

// Bytes of an [N, K] matrix. MO_INVALID_VALUE if N or K is not positive, K is no multiple of 32,
// either exceeds 2^31 - 1, or the size does not fit a size_t.
mo_status mo_q4_0_size(int64_t N, int64_t K, size_t *size);

// Q4_0 blocks of a float32 [N, K] matrix. MO_INVALID_VALUE, naming the first such row, where an
// element is NaN or infinite, or its block's scale does not fit a half; blocks is then unspecified.
mo_status mo_q4_0_quantize(const float *values, int64_t N, int64_t K, void *blocks);

// float32(d) * (q - 8), exactly. Fails only if it is interrupted.
mo_status mo_q4_0_dequantize(const void *blocks, int64_t N, int64_t K, float *values);

// ---- GGUF files --------------------------------------------------------------------------------

// Elements and bytes of one block of a GGUF tensor type; 0, 0 for a type that does not exist.
typedef struct mo_gguf_type {
    uint32_t block_elements;
    uint32_t block_bytes;
} mo_gguf_type;

// Whether a file's bytes are a little-endian GGUF file (version 2 or 3) that a reader can trust:
// every count, length, offset and tensor lies within its size. types holds n_types entries, by type
// number. Reads nothing outside the file and takes time proportional to the header.
// MO_INVALID_VALUE says what is wrong and with which tensor.
mo_status mo_gguf_check(const void *file, size_t size, const mo_gguf_type *types, size_t n_types);

#ifdef __cplusplus
}
#endif

#endif
