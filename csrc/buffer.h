// Buffers as the devices see them.

#ifndef MLXOPS_BUFFER_H
#define MLXOPS_BUFFER_H

#include "mlxops.h"

// What Metal asks of memory that it shares: whole pages. The page of macOS on arm64, and a multiple
// of all others in use.
#define MO_PAGE ((size_t)16384)

// The device's handle of the buffer's whole memory: made on first use, kept with the memory, freed
// with it. NULL where the device cannot share this memory.
mo_status mo_buffer_wrapper(mo_buffer *buffer, mo_device *device, void **wrapper);

// Whether the buffer has its pages for itself: all but mo_buffer_borrow's.
bool mo_buffer_has_pages(const mo_buffer *buffer);

#endif
