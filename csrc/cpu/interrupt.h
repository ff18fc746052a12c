// How work on the CPU notices an interrupt.

#ifndef MLXOPS_INTERRUPT_H
#define MLXOPS_INTERRUPT_H

#include <stdbool.h>

// The least time between two calls of the interrupt check.
#define MO_INTERRUPT_NANOSECONDS 60000000

// The calling thread begins work that it polls in.
void mo_begin_polling(void);

// Whether to stop: mo_interrupted() where MO_INTERRUPT_NANOSECONDS have passed since the work
// began, or since the last time. Otherwise it only looks at the clock, and the first time not even
// there.
bool mo_poll_interrupt(void);

#endif
