// What the operations check of their operands, and how they say what is wrong.

#ifndef MLXOPS_OPERAND_H
#define MLXOPS_OPERAND_H

#include "encoder.h"

#define MO_MAX_SIZE INT64_C(2147483647) // of N, K, m, seq and q_sp + k_sp + v_sp
#define MO_MAX_NDIM 64

// A shape as people write it, "(3, 64)". text has room for size bytes; returns text.
const char *mo_shape_text(int ndim, const int64_t *shape, char *text, size_t size);

// How many rows an array has: the product of its leading dimensions. row_name is what the operation
// calls their number, "m". MO_INVALID_VALUE if a dimension is missing, not positive, or rows exceed
// MO_MAX_SIZE.
mo_status mo_count_rows(const char *name, const mo_array *array, const char *row_name,
                        int64_t *rows);

// Whether the buffer has all bytes of the float32 array.
mo_status mo_check_array_size(const char *name, const mo_array *array);

// Whether what is `offset` bytes into a buffer is aligned, there and in a copy of the buffer that a
// device may make, which begins at a page.
bool mo_is_aligned(const mo_buffer *buffer, size_t offset, size_t alignment);

// A range of memory that an operation reads or writes.
typedef struct mo_extent {
    const char *name;
    const mo_buffer *buffer; // NULL: not made yet, overlaps nothing
    size_t offset;
    size_t size;
} mo_extent;

mo_extent mo_extent_of_array(const char *name, const mo_array *array);

// MO_INVALID_VALUE if a result overlaps an operand or another result.
mo_status mo_check_overlap(const mo_extent *results, size_t n_results, const mo_extent *operands,
                           size_t n_operands);

// Whether a result that the caller gives has the shape x.shape[:-1] + (last,) and all its bytes.
mo_status mo_check_result(const char *name, const mo_result *result, const mo_array *x,
                          int64_t last);

// Make buffers for those of the n results that have none, of `rows` rows of last[i] elements. On
// failure none of them has a new one.
mo_status mo_make_results(mo_result *const *results, const int64_t *last, size_t n, int64_t rows);

// How many rows of row_work each one command buffer takes, at least one.
int64_t mo_rows_per_command_buffer(double limit, double row_work);

static inline uint64_t mo_ceil_div(int64_t a, int64_t b) {
    return ((uint64_t)a + (uint64_t)b - 1) / (uint64_t)b;
}

// Release the buffers that mo_make_results made: those of results that were not given one.
void mo_discard_results(mo_result *const *results, mo_buffer *const *given, size_t n);

#endif
