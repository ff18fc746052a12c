// The GPU, its context and the stream that all work goes through.

#ifndef MLXOPS_CUDA_CONTEXT_H
#define MLXOPS_CUDA_CONTEXT_H

#include "cuda/driver.h"

// Whether there is a GPU that can run the kernels: the first one of those that the driver shows.
// Initialises the driver, but makes no context.
bool mo_cuda_find_gpu(char *why_not, size_t size);

// The GPU's name, compute capability and memory, for people.
const char *mo_cuda_gpu_text(void);

// Bytes of the GPU's memory.
size_t mo_cuda_gpu_memory(void);

// Makes the context current on this thread, until mo_cuda_leave: the GPU's primary context, which
// it shares with whatever else in the process uses CUDA. Made when it is first entered.
// MO_DEVICE_ERROR in a forked process.
mo_status mo_cuda_enter(void);
void mo_cuda_leave(void);

// The same for cleaning up: never opens the context, and says nothing where it cannot be entered.
bool mo_cuda_enter_again(void);

// The stream, once the context has been entered: one for the process, so that whatever is begun
// later, by any thread, runs later.
CUstream mo_cuda_stream(void);

// Waits until all that was begun is done.
mo_status mo_cuda_wait(void);

// The same after something else has failed, whose message is to stay.
void mo_cuda_wait_quietly(void);

#endif
