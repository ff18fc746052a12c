// What the extension built for the tests has more than the one that ships: included before every
// file of it.

#ifndef MLXOPS_TEST_HOOKS_H
#define MLXOPS_TEST_HOOKS_H

#include <stddef.h>

// The work in one command buffer, so small that ordinary shapes are cut.
extern double mo_test_projection_work, mo_test_qkv_split_work;
#define PROJECTION_WORK mo_test_projection_work
#define QKV_SPLIT_WORK mo_test_qkv_split_work

// Tells the simulator that a kernel has no business in the rest of the pages.
void mo_test_buffer_allocated(const void *contents, size_t size, size_t capacity);
#define MO_BUFFER_ALLOCATED(contents, size, capacity)                                              \
    mo_test_buffer_allocated(contents, size, capacity)

#endif
