// The threads of the CPU device.

#ifndef MLXOPS_THREADS_H
#define MLXOPS_THREADS_H

#include "mlxops.h"

// Runs work(context, begin, end) over pieces of [0, n) on up to mo_num_threads() threads, the
// calling one included, and returns when all is done. cost says how much work one of the n is, in
// steps of roughly a nanosecond: work too small to share stays on the calling thread. Whatever the
// threads of the pool are doing, the caller makes progress. The work runs with the default
// floating-point environment, and the caller's is restored.
//
// MO_INTERRUPTED if the interrupt check, which the caller polls between pieces, says to stop: the
// rest of the pieces is then left undone. Pieces are as small as that needs, if cost is about
// right and one of the n takes no longer.
mo_status mo_parallel_for(void (*work)(void *context, size_t begin, size_t end), void *context,
                          size_t n, size_t cost);

#endif
