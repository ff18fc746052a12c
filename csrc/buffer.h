// Buffers as the devices see them.

#ifndef MLXOPS_BUFFER_H
#define MLXOPS_BUFFER_H

#include "mlxops.h"

// What Metal asks of memory that it shares: whole pages. The page of macOS on arm64, and a multiple
// of all others in use.
#define MO_PAGE ((size_t)16384)

// What the device keeps with the buffer's memory, such as its handle of it or its copies: made on
// first use, kept as long as the memory is, for the next buffers too. NULL where it keeps nothing.
mo_status mo_buffer_wrapper(mo_buffer *buffer, mo_device *device, void **wrapper);

// Bytes of the buffer's memory: its size, or for our own the whole pages that it takes.
size_t mo_buffer_capacity(const mo_buffer *buffer);

// Whether the buffer has its pages for itself: all but mo_buffer_borrow's.
bool mo_buffer_has_pages(const mo_buffer *buffer);

// Whether the memory is our own, from mo_buffer_alloc.
bool mo_buffer_is_own(const mo_buffer *buffer);

// Whether the contents cannot change: mo_buffer_freeze.
bool mo_buffer_is_frozen(const mo_buffer *buffer);

#endif
