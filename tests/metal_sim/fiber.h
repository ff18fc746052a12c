/* Switching between the stacks of a threadgroup's threads, in a few instructions. */
#ifndef SIM_FIBER_H
#define SIM_FIBER_H

/* Saves the running stack at *from and continues on the stack saved as to. */
void sim_fiber_switch(void **from, void *to);
/* A saved stack, below top, that will call entry when switched to. */
void *sim_fiber_prepare(void *top, void (*entry)(void));
/* Sets how subnormals are treated, round to nearest; the old state, for sim_fp_restore. */
unsigned long sim_fp_begin(int flush_subnormals);
void sim_fp_restore(unsigned long state);

#endif
