/* The state of the dispatch that runs, shared by executor.c (threads) and memory.c (accesses). */
#ifndef SIM_EXECUTOR_H
#define SIM_EXECUTOR_H

#include "sim.h"

enum { MAX_REGIONS = 256, RECENT_REGIONS = 256, STACK_BYTES = 128 * 1024 };

enum memory_kind {
    DEVICE_MEMORY,
    THREADGROUP_MEMORY,
    CONSTANT_DATA,
    GAP,       /* around threadgroup variables */
    FORBIDDEN, /* its name says why */
};

/* Who last wrote and who last read some bytes. Times are those of the run's clock, 0 is never. */
struct cell {
    uint32_t write_time, writer, read_time, reader;
};

struct region {
    uintptr_t start, end;
    enum memory_kind kind;
    bool writable;
    char name[80];
    struct cell *cells; /* one for each 1 << cell_shift bytes, where the region is writable */
    size_t cells_size;
    unsigned cell_shift;
};

enum thread_state { READY, AT_SIMD_OPERATION, AT_SIMDGROUP_BARRIER, AT_BARRIER, RETURNED };

struct thread {
    void *stack_pointer;
    enum thread_state state;
    const struct sim_site *site; /* where it waits */
};

struct simdgroup {
    uint32_t live, arrived, at_barrier, active[2];
    unsigned phase;
    uint32_t ordered[2]; /* time of its last barrier for device and for threadgroup memory */
    const struct sim_site *site;
    char slots[2][SIM_SIMD_WIDTH * 16];
};

struct run {
    volatile bool active; /* shader code is running: accesses are checked */
    bool failed;
    volatile int overdue;      /* the watchdog's signals since its time was up */
    unsigned current, threads; /* thread in the threadgroup */
    uintptr_t stack_start;     /* of the current thread */
    struct region *recent[RECENT_REGIONS];

    uint32_t now, group_start; /* the clock counts barriers and threadgroups */
    uint32_t ordered[2];       /* time of the threadgroup's last barrier, as for a simdgroup */
    uint32_t group_number, group[3], group_size[3], at_barrier;
    size_t accesses;

    struct region regions[MAX_REGIONS];
    unsigned region_count;
    struct thread thread[SIM_MAX_THREADS];
    struct simdgroup simdgroup[SIM_MAX_THREADS / SIM_SIMD_WIDTH];

    const struct sim_dispatch *dispatch;
    void *main_stack;
    char *stacks;
    pthread_t owner;

    char message[1024];
    uintptr_t failed_address; /* in the shader's code, or 0 and ... */
    struct sim_site failed_site;
};

extern struct run sim_run;

/* Ends the run at the current thread; the place is a return address or a site. Does not return. */
void sim_fail(const void *address, const struct sim_site *site, const char *format, ...)
    __attribute__((noreturn, format(printf, 3, 4)));

/* The watchdog's time is up, and the current thread came by here. */
void sim_fail_overdue(const void *address, const struct sim_site *site) __attribute__((noreturn));

/* A new region; what it overlaps of the same kind is merged into it. NULL when there are too many.
 */
struct region *sim_region_add(uintptr_t start, size_t length, enum memory_kind kind, bool writable,
                              const char *name);
/* Cuts zones that no shader may touch out of the regions. */
void sim_regions_cut(const struct sim_zone *zones, size_t count);
void sim_regions_watch(void); /* makes the cells */
void sim_regions_free(void);

/* library.c: called for reads while a shader's constants are initialised */
extern bool sim_loading;
void sim_loading_read(uintptr_t address);

#endif
