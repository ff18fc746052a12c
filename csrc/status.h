// How a failing function leaves its message.

#ifndef MLXOPS_STATUS_H
#define MLXOPS_STATUS_H

#include "mlxops.h"

// Sets this thread's message, as printf does, and returns status: `return mo_fail(...)`.
__attribute__((format(printf, 2, 3))) mo_status mo_fail(mo_status status, const char *format, ...);

// MO_OUT_OF_MEMORY with the number of bytes that could not be had.
mo_status mo_fail_memory(size_t size);

#endif
