// Where the arguments of one commit's dispatches are on the GPU.
//
// What a dispatch reads before another has written it is moved there once, at the start; what any
// has written is moved back once, at the end; nothing is in between. Frozen buffers have copies
// that stay.

#ifndef MLXOPS_CUDA_STAGING_H
#define MLXOPS_CUDA_STAGING_H

#include "cuda/memory.h"
#include "encoder.h"

typedef struct mo_cuda_staged mo_cuda_staged;

typedef struct mo_cuda_argument {
    CUdeviceptr address;
    mo_cuda_copy *copy;     // if the buffer is frozen
    mo_cuda_staged *staged; // if it is not
} mo_cuda_argument;

typedef struct mo_cuda_staging {
    const mo_dispatch *dispatches;
    size_t n;
    mo_cuda_argument *arguments; // MO_MAX_ARGUMENTS for each dispatch
    mo_cuda_staged *staged;      // the buffers that are not frozen
    mo_cuda_block *block;        // where they are
} mo_cuda_staging;

// All of these want the context entered.

// Finds a place for every argument, and starts to move there what is read.
mo_status mo_cuda_stage(mo_cuda_staging *staging, const mo_dispatch *dispatches, size_t n);

// Starts to move back what was written.
mo_status mo_cuda_fetch_results(const mo_cuda_staging *staging);

// Gives everything back. After a wait.
void mo_cuda_unstage(mo_cuda_staging *staging);

#endif
