#include "cpu/placement.h"

#ifdef __linux__

#include <sched.h>

// What the first n_placed threads were given last, and for which processor.
static cpu_set_t placed_within;
static int placed_beside;
static int n_placed;

void mo_place_beside_caller(const pthread_t *threads, int n) {
    cpu_set_t allowed;
    const int here = sched_getcpu();
    if (here < 0 || here >= CPU_SETSIZE || sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    const bool same = here == placed_beside && CPU_EQUAL(&allowed, &placed_within);
    placed_beside = here;
    placed_within = allowed;
    if (CPU_COUNT(&allowed) > 1)
        CPU_CLR(here, &allowed);
    for (int i = same ? n_placed : 0; i < n; i++)
        pthread_setaffinity_np(threads[i], sizeof allowed, &allowed);
    if (!same || n > n_placed)
        n_placed = n;
}

bool mo_may_run_beside_caller(void) {
    cpu_set_t allowed;
    return sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) > 1;
}

void mo_forget_placement(void) {
    n_placed = 0;
}

#else

void mo_place_beside_caller(const pthread_t *threads, int n) {
    (void)threads, (void)n;
}

bool mo_may_run_beside_caller(void) {
    return true;
}

void mo_forget_placement(void) {
}

#endif
