/* Runs one kernel through the Metal API, for the simulator's own tests. */
#ifndef HARNESS_H
#define HARNESS_H

#include <stddef.h>
#include <stdint.h>

enum harness_kind { HARNESS_NONE, HARNESS_BUFFER, HARNESS_BYTES, HARNESS_THREADGROUP_MEMORY };

struct harness_argument {
    int kind, index;
    void *data; /* copied in before, and copied out after, where it is a buffer */
    size_t length;
};

struct harness_constant {
    int type, index;
    uint64_t bits;
};

struct harness_job {
    const char *source, *kernel;
    const struct harness_argument *arguments;
    size_t argument_count;
    const struct harness_constant *constants;
    size_t constant_count;
    size_t grid[3], group[3]; /* the grid in threads */
    int fast_math;
};

/* 0, or -1 with Metal's text in error. */
__attribute__((visibility("default"))) int harness_run(const struct harness_job *job, char *error,
                                                       size_t error_size);

#endif
