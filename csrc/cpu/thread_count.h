// How many threads the process should use.

#ifndef MLXOPS_THREAD_COUNT_H
#define MLXOPS_THREAD_COUNT_H

// MLXOPS_NUM_THREADS if that is a number of threads, else the processors that this process may use:
// those of its affinity, and no more than its cgroup's quota. 1 to MO_MAX_THREADS.
int mo_initial_num_threads(void);

#endif
