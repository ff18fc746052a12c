// Reading memory as fast as all threads can: what `python -m mlxops bench` measures the kernels by.

#ifndef MLXOPS_READ_MEMORY_H
#define MLXOPS_READ_MEMORY_H

#include "mlxops.h"

// The exclusive-or of the memory's uint64 words; the last one is completed with zeros. Shared among
// the threads of the CPU device as an operation is, and like one MO_INTERRUPTED.
mo_status mo_read_memory(const void *memory, size_t size, uint64_t *combined);

#endif
