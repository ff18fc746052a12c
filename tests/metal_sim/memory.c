/* Every access of a shader comes by here: the compiler puts a call of __tsan_read4() and its like
 * before each (-fsanitize=thread), and these are the functions that get called. */
#include "executor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- regions ---- */

struct region *sim_region_add(uintptr_t start, size_t length, enum memory_kind kind, bool writable,
                              const char *name) {
    uintptr_t end = start + length;
    struct region *regions = sim_run.regions;
    char merged[sizeof regions->name];
    for (unsigned i = 0; kind == DEVICE_MEMORY && i < sim_run.region_count; i++) {
        if (regions[i].kind != kind || end <= regions[i].start || regions[i].end <= start)
            continue;
        start = start < regions[i].start ? start : regions[i].start;
        end = end > regions[i].end ? end : regions[i].end;
        writable |= regions[i].writable;
        if (!writable || regions[i].writable)
            name = strcpy(merged, regions[i].name);
        regions[i] = regions[--sim_run.region_count];
        i = -1u; /* the larger region may overlap others */
    }
    if (sim_run.region_count == MAX_REGIONS)
        return NULL;
    struct region *region = &regions[sim_run.region_count++];
    *region = (struct region){.start = start, .end = end, .kind = kind, .writable = writable};
    strncpy(region->name, name, sizeof region->name - 1);
    return region;
}

void sim_regions_cut(const struct sim_zone *zones, size_t count) {
    for (size_t z = 0; z < count; z++)
        for (unsigned i = 0; i < sim_run.region_count; i++) {
            struct region *region = &sim_run.regions[i], rest = *region;
            if (region->kind != DEVICE_MEMORY || zones[z].end <= region->start ||
                zones[z].start >= region->end)
                continue;
            if (zones[z].start > region->start && zones[z].end < region->end &&
                sim_run.region_count < MAX_REGIONS) {
                rest.start = zones[z].end;
                region->end = zones[z].start;
                sim_run.regions[sim_run.region_count++] = rest;
            } else if (zones[z].start > region->start) {
                region->end = zones[z].start;
            } else {
                region->start = zones[z].end < region->end ? zones[z].end : region->end;
            }
        }
}

static void make_cells(struct region *region, unsigned shift) {
    region->cell_shift = shift;
    region->cells_size = (((region->end - region->start) >> shift) + 2) * sizeof(struct cell);
    region->cells = mmap(NULL, region->cells_size, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (region->cells == MAP_FAILED)
        abort();
}

/* Device memory starts with a cell for each 4 bytes; the first smaller access asks for one each. */
static void refine(struct region *region) {
    struct region old = *region;
    make_cells(region, 0);
    size_t skipped = region->start & 3; /* a word's cell covers bytes before the region */
    for (size_t i = 0; i < region->end - region->start; i++) {
        const struct cell *word = &old.cells[(i + skipped) >> 2];
        if (word->write_time || word->read_time)
            region->cells[i] = *word;
    }
    munmap(old.cells, old.cells_size);
}

static struct region nowhere; /* is in no memory: first accesses look for their region */

void sim_regions_watch(void) {
    for (unsigned i = 0; i < sim_run.region_count; i++)
        if (sim_run.regions[i].writable && !sim_run.regions[i].cells)
            make_cells(&sim_run.regions[i], sim_run.regions[i].kind == DEVICE_MEMORY ? 2 : 0);
    for (int i = 0; i < RECENT_REGIONS; i++)
        sim_run.recent[i] = &nowhere;
}

void sim_regions_free(void) {
    for (unsigned i = 0; i < sim_run.region_count; i++)
        if (sim_run.regions[i].cells)
            munmap(sim_run.regions[i].cells, sim_run.regions[i].cells_size);
    sim_run.region_count = 0;
}

/* ---- races ---- */

/* Who: the thread, how many like it, and (for the report) the threadgroup's number. */
enum { ONE_THREAD = 0, THREADS_OF_SIMDGROUP = 1, THREADS_OF_GROUP = 2, THREADGROUPS = 3 };

static uint32_t who(unsigned thread, unsigned kind) {
    return thread | kind << 10 | sim_run.group_number << 12;
}

static unsigned thread_of(uint32_t who) {
    return who & 1023;
}
static unsigned kind_of(uint32_t who) {
    return who >> 10 & 3;
}

/* Did every access of that time and those threads happen before what the current thread does now?
 */
static bool is_ordered(uint32_t time, uint32_t who, const struct region *region) {
    unsigned group = sim_run.current / SIM_SIMD_WIDTH;
    if (time < sim_run.group_start)
        return region->kind == THREADGROUP_MEMORY; /* left behind by another threadgroup */
    if (kind_of(who) == THREADGROUPS)
        return false;
    if (time < sim_run.ordered[region->kind])
        return true;
    if (kind_of(who) == ONE_THREAD && thread_of(who) == sim_run.current)
        return true;
    return kind_of(who) != THREADS_OF_GROUP && thread_of(who) / SIM_SIMD_WIDTH == group &&
           time < sim_run.simdgroup[group].ordered[region->kind];
}

static void fail_race(const void *address, const struct region *region, uintptr_t at,
                      const char *access, uint32_t time, uint32_t other, const char *did) {
    char who_text[128];
    if (kind_of(other) == THREADGROUPS)
        snprintf(who_text, sizeof who_text, "several threadgroups");
    else if (time < sim_run.group_start)
        snprintf(who_text, sizeof who_text, "thread %u of threadgroup number %u", thread_of(other),
                 (other >> 12) - 1);
    else if (kind_of(other) == ONE_THREAD)
        snprintf(who_text, sizeof who_text, "thread %u of the same threadgroup", thread_of(other));
    else
        snprintf(who_text, sizeof who_text, "several threads of the same threadgroup");
    sim_fail(address, NULL, "race: %s at byte %zu of %s, which %s %s with no barrier between",
             access, (size_t)(at - region->start), region->name, who_text, did);
}

static void note_read(struct cell *cell, const struct region *region) {
    unsigned me = sim_run.current, kind = ONE_THREAD;
    if (cell->read_time) {
        unsigned before = thread_of(cell->reader);
        if (cell->read_time < sim_run.group_start || kind_of(cell->reader) == THREADGROUPS)
            kind = region->kind == DEVICE_MEMORY ? THREADGROUPS : ONE_THREAD;
        else if (!is_ordered(cell->read_time, cell->reader, region))
            kind = kind_of(cell->reader) == THREADS_OF_GROUP ||
                           before / SIM_SIMD_WIDTH != me / SIM_SIMD_WIDTH
                       ? THREADS_OF_GROUP
                       : THREADS_OF_SIMDGROUP;
    }
    cell->read_time = sim_run.now;
    cell->reader = who(me, kind);
}

static void watch(struct region *region, uintptr_t start, size_t size, bool write,
                  const void *address) {
    if (region->cell_shift && (size < 4 || (start & 3)))
        refine(region);
    uintptr_t base = region->start & ~(((uintptr_t)1 << region->cell_shift) - 1);
    size_t last = (start + size - 1 - base) >> region->cell_shift;
    for (size_t i = (start - base) >> region->cell_shift; i <= last; i++) {
        struct cell *cell = &region->cells[i];
        uintptr_t at = base + (i << region->cell_shift);
        if (cell->write_time && !is_ordered(cell->write_time, cell->writer, region))
            fail_race(address, region, at, write ? "write" : "read", cell->write_time, cell->writer,
                      "wrote");
        if (write) {
            if (cell->read_time && !is_ordered(cell->read_time, cell->reader, region))
                fail_race(address, region, at, "write", cell->read_time, cell->reader, "read");
            cell->write_time = sim_run.now;
            cell->writer = who(sim_run.current, ONE_THREAD);
        } else {
            if (region->kind == THREADGROUP_MEMORY && cell->write_time < sim_run.group_start)
                sim_fail(address, NULL, "read of uninitialised %s at byte %zu", region->name,
                         (size_t)(at - region->start));
            note_read(cell, region);
        }
    }
}

/* ---- bounds ---- */

static void fail_bounds(uintptr_t start, size_t size, bool write, const void *address) {
    const struct region *nearest = NULL;
    uintptr_t distance = 0;
    for (unsigned i = 0; i < sim_run.region_count; i++) {
        const struct region *region = &sim_run.regions[i];
        if (region->kind != DEVICE_MEMORY && region->kind != THREADGROUP_MEMORY)
            continue;
        uintptr_t d = start >= region->end ? start - region->end : region->start - start;
        if (!nearest || d < distance) {
            nearest = region;
            distance = d;
        }
    }
    const char *access = write ? "write" : "read";
    if (!nearest || distance > (uintptr_t)1 << 33)
        sim_fail(address, NULL, "%s of %zu bytes out of bounds: not near any argument", access,
                 size);
    sim_fail(address, NULL, "%s of %zu bytes out of bounds: %zu bytes %s %s, which has %zu bytes",
             access, size, (size_t)distance, start >= nearest->end ? "past the end of" : "before",
             nearest->name, (size_t)(nearest->end - nearest->start));
}

/* The region that the instruction at address met last; most meet only one. */
static inline struct region **recent(const void *address) {
    return &sim_run.recent[((uintptr_t)address >> 2) % RECENT_REGIONS];
}

static struct region *find(uintptr_t start) {
    for (unsigned i = sim_run.region_count; i-- > 0;) {
        struct region *region = &sim_run.regions[i];
        if (start >= region->start && start < region->end)
            return region;
    }
    return NULL;
}

/* What is not plainly allowed: finds the region, and fails or looks for races. */
__attribute__((noinline)) static void check_closely(uintptr_t start, size_t size, bool write,
                                                    bool aligned, bool race, const void *address) {
    struct region *region = find(start);
    const char *access = write ? "write" : "read";
    if (!region || region->kind == GAP)
        fail_bounds(start, size, write, address);
    if (region->kind != CONSTANT_DATA) /* which contains others */
        *recent(address) = region;
    if (region->kind == FORBIDDEN)
        sim_fail(address, NULL, "%s of %s", access, region->name);
    if (start + size > region->end)
        sim_fail(address, NULL,
                 "%s of %zu bytes out of bounds: crosses the end of %s, which has %zu bytes",
                 access, size, region->name, (size_t)(region->end - region->start));
    if (aligned && (start & (size - 1)))
        sim_fail(address, NULL, "misaligned %s of %zu bytes at byte %zu of %s", access, size,
                 (size_t)(start - region->start), region->name);
    if (write && !region->writable)
        sim_fail(address, NULL, "write to read-only %s", region->name);
    if (region->cells && race)
        watch(region, start, size, write, address);
}

/* Kept short: shaders spend their time here. */
static inline void check(uintptr_t start, size_t size, bool write, bool aligned, bool race,
                         const void *address) {
    if (!sim_run.active) {
        if (sim_run.overdue)
            sim_fail_overdue(address, NULL);
        if (sim_loading && !write)
            sim_loading_read(start);
        return;
    }
    if (start - sim_run.stack_start < STACK_BYTES)
        return;
    sim_run.accesses++;
    const struct region *region = *recent(address);
    bool inside = start >= region->start && start + size <= region->end;
    if (inside && !write && !region->cells && !(aligned && (start & (size - 1))))
        return;
    check_closely(start, size, write, aligned, race, address);
}

/* ---- the hooks ---- */

#define HOOK METAL_SIM_API
#define CALLER __builtin_return_address(0)
#define HOOKS(size)                                                                                \
    HOOK void __tsan_read##size(void *p) {                                                         \
        check((uintptr_t)p, size, false, true, true, CALLER);                                      \
    }                                                                                              \
    HOOK void __tsan_write##size(void *p) {                                                        \
        check((uintptr_t)p, size, true, true, true, CALLER);                                       \
    }                                                                                              \
    HOOK void __tsan_unaligned_read##size(void *p) {                                               \
        check((uintptr_t)p, size, false, false, true, CALLER);                                     \
    }                                                                                              \
    HOOK void __tsan_unaligned_write##size(void *p) {                                              \
        check((uintptr_t)p, size, true, false, true, CALLER);                                      \
    }

HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

HOOK void __tsan_init(void) {
}

/* The shader is linked so that its block moves come here. */
HOOK void *__wrap_memcpy(void *to, const void *from, size_t size) {
    if (size) {
        check((uintptr_t)from, size, false, false, true, CALLER);
        check((uintptr_t)to, size, true, false, true, CALLER);
    }
    return memcpy(to, from, size);
}

HOOK void *__wrap_memmove(void *to, const void *from, size_t size) {
    if (size) {
        check((uintptr_t)from, size, false, false, true, CALLER);
        check((uintptr_t)to, size, true, false, true, CALLER);
    }
    return memmove(to, from, size);
}

HOOK void *__wrap_memset(void *to, int value, size_t size) {
    if (size)
        check((uintptr_t)to, size, true, false, true, CALLER);
    return memset(to, value, size);
}

HOOK void sim_atomic_access(const volatile void *p, unsigned size) {
    check((uintptr_t)p, size, true, true, false, CALLER);
}
