// Sets of bytes of a buffer: ranges in ascending order, apart from each other.

#ifndef MLXOPS_CUDA_RANGES_H
#define MLXOPS_CUDA_RANGES_H

#include "mlxops.h"

typedef struct mo_range {
    size_t start, end;
} mo_range;

typedef struct mo_ranges {
    mo_range *items;
    size_t n, capacity;
} mo_ranges;

// Adds a range, which becomes one with those that it overlaps or touches. MO_OUT_OF_MEMORY.
mo_status mo_ranges_add(mo_ranges *ranges, mo_range range);

// The index of the range that holds this one as a whole, ranges->n if none does.
size_t mo_ranges_find(const mo_ranges *ranges, mo_range range);

void mo_ranges_free(mo_ranges *ranges);

#endif
