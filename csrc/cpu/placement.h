// On which processors the threads of the pool run.

#ifndef MLXOPS_PLACEMENT_H
#define MLXOPS_PLACEMENT_H

#include <pthread.h>
#include <stdbool.h>

// Keeps n threads on the processors that the calling thread may use, but off the one that it runs
// on. Linux may wake a thread on its waker's own processor though another one is idle, and there it
// waits until the work that it was woken for is done. Elsewhere, and where the system refuses, the
// threads stay where they are. Not for several threads at once.
void mo_place_beside_caller(const pthread_t *threads, int n);

// Whether the calling thread may use more than one processor. True where that is not known.
bool mo_may_run_beside_caller(void);

// The threads do not exist any more.
void mo_forget_placement(void);

#endif
