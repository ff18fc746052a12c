// Memory of the GPU, and what the GPU knows of ours.
//
// A frozen buffer's ranges are copied to the GPU when they are first used, and the copies stay
// until the buffer is freed; or until the space is needed, those that have not been used for
// longest first. Together they take at most three quarters of the GPU's memory, unless a single
// commit needs more. Everything else has its place in a block for as long as one commit takes. Our
// own pages are registered with the driver, which then moves them without another copy.
//
// All functions may be called by any thread. Those that return mo_status, and mo_cuda_register,
// want the context entered.

#ifndef MLXOPS_CUDA_MEMORY_H
#define MLXOPS_CUDA_MEMORY_H

#include "cuda/driver.h"
#include "cuda/ranges.h"

// What cuMemAlloc promises, and more than any kernel asks: an address has the same remainder in a
// buffer and on the GPU.
#define MO_CUDA_ALIGNMENT ((size_t)256)

// ---- Blocks ------------------------------------------------------------------------------------

typedef struct mo_cuda_block {
    CUdeviceptr memory;
    size_t size;
    struct mo_cuda_block *next;
} mo_cuda_block;

// A block of at least that size; its contents are anything. MO_OUT_OF_MEMORY.
mo_status mo_cuda_take_block(size_t size, mo_cuda_block **block);

// What was begun with it need not be done yet. NULL is allowed.
void mo_cuda_give_block(mo_cuda_block *block);

// ---- Copies of frozen buffers ------------------------------------------------------------------

typedef struct mo_cuda_copy mo_cuda_copy;

// A copy that has the range of the frozen buffer. It stays until it is let go of, after a wait.
mo_status mo_cuda_hold_copy(mo_buffer *buffer, mo_range range, mo_cuda_copy **copy);
void mo_cuda_let_go(mo_cuda_copy *copy); // NULL is allowed

// Where the buffer's byte at the offset is on the GPU.
CUdeviceptr mo_cuda_copied(const mo_cuda_copy *copy, size_t offset);

// ---- What is kept with a buffer's memory: mo_device.wrap and so on -----------------------------

mo_status mo_cuda_wrap(const mo_buffer *buffer, void **wrapper);
bool mo_cuda_unwrap(void *wrapper);
void mo_cuda_forget(void *wrapper);
void mo_cuda_trim(void);

// Registers a buffer's pages with the driver, if they are our own, it has not been done, and the
// driver can: at most a gibibyte.
mo_status mo_cuda_register(mo_buffer *buffer);

#endif
