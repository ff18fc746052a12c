#include "cuda/ranges.h"
#include "status.h"

#include <stdlib.h>
#include <string.h>

static mo_status grow(mo_ranges *ranges) {
    const size_t capacity = ranges->capacity ? 2 * ranges->capacity : 4;
    mo_range *items = realloc(ranges->items, capacity * sizeof *items);
    if (!items)
        return mo_fail_memory(capacity * sizeof *items);
    ranges->items = items;
    ranges->capacity = capacity;
    return MO_OK;
}

// The first range that ends at a byte or after it.
static size_t first_ending_from(const mo_ranges *ranges, size_t byte) {
    size_t low = 0, high = ranges->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (ranges->items[middle].end < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

mo_status mo_ranges_add(mo_ranges *ranges, mo_range range) {
    if (ranges->n == ranges->capacity) {
        const mo_status status = grow(ranges);
        if (status != MO_OK)
            return status;
    }
    const size_t first = first_ending_from(ranges, range.start);
    size_t after = first;
    for (; after < ranges->n && ranges->items[after].start <= range.end; after++) {
        const mo_range met = ranges->items[after];
        range.start = met.start < range.start ? met.start : range.start;
        range.end = met.end > range.end ? met.end : range.end;
    }
    memmove(&ranges->items[first + 1], &ranges->items[after],
            (ranges->n - after) * sizeof *ranges->items);
    ranges->items[first] = range;
    ranges->n = ranges->n - (after - first) + 1;
    return MO_OK;
}

size_t mo_ranges_find(const mo_ranges *ranges, mo_range range) {
    const size_t i = first_ending_from(ranges, range.end);
    return i < ranges->n && ranges->items[i].start <= range.start ? i : ranges->n;
}

void mo_ranges_free(mo_ranges *ranges) {
    free(ranges->items);
    *ranges = (mo_ranges){.items = NULL};
}
