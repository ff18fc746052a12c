// How many threads the process should use.

#ifndef MLXOPS_THREAD_COUNT_H
#define MLXOPS_THREAD_COUNT_H

#include "mlxops.h"

// MLXOPS_NUM_THREADS if that is a number of threads, else the processors that this process may use:
// those of its affinity, and no more than its cgroup's quota. 1 to MO_MAX_THREADS.
int mo_initial_num_threads(void);

// What is wrong with MLXOPS_NUM_THREADS, as a status and its message.
mo_status mo_check_num_threads_environment(void);

#endif
