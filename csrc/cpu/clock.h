// The time, for measuring how long something lasts.

#ifndef MLXOPS_CLOCK_H
#define MLXOPS_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t mo_nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

#endif
