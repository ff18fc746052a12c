// Checks of operands and results, and the buffers of results that have none.

#include "ops/operand.h"
#include "status.h"

#include <stdio.h>
#include <string.h>

const char *mo_shape_text(int ndim, const int64_t *shape, char *text, size_t size) {
    size_t used = (size_t)snprintf(text, size, "(");
    for (int i = 0; i < ndim && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, i == 0 ? "%lld" : ", %lld",
                                 (long long)shape[i]);
    if (used < size)
        snprintf(text + used, size - used, ndim == 1 ? ",)" : ")");
    return text;
}

mo_status mo_count_rows(const char *name, const mo_array *array, const char *row_name,
                        int64_t *rows) {
    char text[128];
    if (array->ndim < 1)
        return mo_fail(MO_INVALID_VALUE, "%s has no dimensions; at least one is needed", name);
    if (array->ndim > MO_MAX_NDIM)
        return mo_fail(MO_INVALID_VALUE, "%s has %d dimensions; at most %d are supported", name,
                       array->ndim, MO_MAX_NDIM);
    *rows = 1;
    for (int i = 0; i < array->ndim - 1; i++) {
        if (array->shape[i] < 1)
            return mo_fail(MO_INVALID_VALUE, "%s has shape %s, so %s is %lld; it must be positive",
                           name, mo_shape_text(array->ndim, array->shape, text, sizeof text),
                           row_name, (long long)array->shape[i]);
        if (__builtin_mul_overflow(*rows, array->shape[i], rows) || *rows > MO_MAX_SIZE)
            return mo_fail(MO_INVALID_VALUE, "%s has shape %s; %s is at most 2^31 - 1", name,
                           mo_shape_text(array->ndim, array->shape, text, sizeof text), row_name);
    }
    return MO_OK;
}

// Bytes of a float32 array; false if they do not fit a size_t.
static bool array_bytes(const mo_array *array, size_t *bytes) {
    *bytes = sizeof(float);
    for (int i = 0; i < array->ndim; i++)
        if (array->shape[i] < 0 || __builtin_mul_overflow(*bytes, (size_t)array->shape[i], bytes))
            return false;
    return true;
}

mo_status mo_check_array_size(const char *name, const mo_array *array) {
    char text[128];
    size_t needed;
    if (!array_bytes(array, &needed))
        return mo_fail(MO_INVALID_VALUE, "%s has shape %s, whose size in bytes overflows", name,
                       mo_shape_text(array->ndim, array->shape, text, sizeof text));
    const size_t size = mo_buffer_size(array->buffer);
    const size_t there = array->offset < size ? size - array->offset : 0;
    if (needed > there)
        return mo_fail(MO_INVALID_VALUE,
                       "the buffer of %s is too small: shape %s needs %zu bytes, "
                       "%zu are there",
                       name, mo_shape_text(array->ndim, array->shape, text, sizeof text), needed,
                       there);
    if (!mo_is_aligned(array->buffer, array->offset, sizeof(float)))
        return mo_fail(MO_INVALID_VALUE, "%s does not begin at a multiple of 4 bytes", name);
    return MO_OK;
}

bool mo_is_aligned(const mo_buffer *buffer, size_t offset, size_t alignment) {
    const uintptr_t contents = (uintptr_t)mo_buffer_contents(buffer);
    return (contents + offset) % alignment == 0 && offset % alignment == 0;
}

mo_extent mo_extent_of_array(const char *name, const mo_array *array) {
    mo_extent extent = {.name = name, .buffer = array->buffer, .offset = array->offset};
    if (!array->buffer || !array_bytes(array, &extent.size))
        extent.size = 0;
    return extent;
}

static bool overlap(const mo_extent *a, const mo_extent *b) {
    if (!a->buffer || !b->buffer)
        return false;
    const uintptr_t a_start = (uintptr_t)mo_buffer_contents(a->buffer) + a->offset;
    const uintptr_t b_start = (uintptr_t)mo_buffer_contents(b->buffer) + b->offset;
    return a_start < b_start + b->size && b_start < a_start + a->size;
}

mo_status mo_check_overlap(const mo_extent *results, size_t n_results, const mo_extent *operands,
                           size_t n_operands) {
    for (size_t i = 0; i < n_results; i++) {
        for (size_t j = 0; j < n_operands; j++)
            if (overlap(&results[i], &operands[j]))
                return mo_fail(MO_INVALID_VALUE, "%s overlaps %s in memory", results[i].name,
                               operands[j].name);
        for (size_t j = 0; j < i; j++)
            if (overlap(&results[i], &results[j]))
                return mo_fail(MO_INVALID_VALUE, "%s overlaps %s in memory", results[i].name,
                               results[j].name);
    }
    return MO_OK;
}

mo_status mo_check_result(const char *name, const mo_result *result, const mo_array *x,
                          int64_t last) {
    if (!result->buffer)
        return MO_OK;
    bool same = result->ndim == x->ndim && result->shape[x->ndim - 1] == last;
    for (int i = 0; same && i < x->ndim - 1; i++)
        same = result->shape[i] == x->shape[i];
    if (!same) {
        char has[128], needs[128];
        mo_shape_text(result->ndim, result->shape, has, sizeof has);
        int64_t shape[MO_MAX_NDIM];
        memcpy(shape, x->shape, (size_t)x->ndim * sizeof *shape);
        shape[x->ndim - 1] = last;
        mo_shape_text(x->ndim, shape, needs, sizeof needs);
        return mo_fail(MO_INVALID_VALUE, "%s has shape %s; the result has shape %s", name, has,
                       needs);
    }
    return mo_check_array_size(name, result);
}

mo_status mo_make_results(mo_result *const *results, const int64_t *last, size_t n, int64_t rows) {
    mo_buffer *made[4] = {NULL};
    for (size_t i = 1; i < n; i++)
        for (size_t j = 0; j < i; j++)
            if (results[i] == results[j])
                return mo_fail(MO_INVALID_VALUE, "one mo_result cannot take two results");
    for (size_t i = 0; i < n; i++) {
        size_t size;
        mo_status status = MO_OK;
        if (results[i]->buffer)
            continue;
        if (__builtin_mul_overflow((size_t)rows * sizeof(float), (size_t)last[i], &size))
            status = mo_fail(MO_INVALID_VALUE,
                             "the size in bytes of a result of shape (%lld, %lld)"
                             " overflows",
                             (long long)rows, (long long)last[i]);
        if (status == MO_OK)
            status = mo_buffer_alloc(size, &made[i]);
        if (status != MO_OK) {
            while (i-- > 0)
                mo_buffer_release(made[i]);
            return status;
        }
    }
    for (size_t i = 0; i < n; i++)
        if (made[i]) {
            results[i]->buffer = made[i];
            results[i]->offset = 0;
        }
    return MO_OK;
}

void mo_discard_results(mo_result *const *results, mo_buffer *const *given, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!given[i]) {
            mo_buffer_release(results[i]->buffer);
            results[i]->buffer = NULL;
        }
}

int64_t mo_rows_per_command_buffer(double limit, double row_work) {
    const double rows = limit / row_work;
    return rows < 1 ? 1 : rows > (double)MO_MAX_SIZE ? MO_MAX_SIZE : (int64_t)rows;
}
