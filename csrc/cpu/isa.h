// The instruction sets that the projections have kernels for, and which one this process uses.

#ifndef MLXOPS_ISA_H
#define MLXOPS_ISA_H

#include "mlxops.h"

// The most rows of x, and of a weight, that a kernel takes at once.
#define MO_MAX_INPUTS 8
#define MO_MAX_ROWS 32

typedef struct mo_isa {
    const char *name; // as MLXOPS_CPU_ISA has it

    // Whether this processor has the instructions, and the system keeps their registers.
    bool (*available)(void);

    // The kernel wants x in the order in which its registers meet it: arranged for this many of the
    // 32 lanes of the canonical order at a time. 0: it reads x as it is.
    int lanes;

    // Multiply-adds in a nanosecond, roughly.
    int speed;

    // 1 to MO_MAX_ROWS rows of a weight, one after the other, times 1 to MO_MAX_INPUTS rows of x.
    // Result n of input i goes to y[i * ldy + n].
    void (*project)(const unsigned char *rows, int64_t n_rows, int64_t K, const float *x,
                    int n_inputs, float *y, int64_t ldy);
} mo_isa;

// The instruction set in use: that of MLXOPS_CPU_ISA if the machine has it, else the best one.
const mo_isa *mo_chosen_isa(void);

// What is wrong with MLXOPS_CPU_ISA, as a status and its message.
mo_status mo_check_isa_environment(void);

extern const mo_isa mo_isa_scalar;
#ifdef __x86_64__
extern const mo_isa mo_isa_avx2;
extern const mo_isa mo_isa_avx512;
#endif
#ifdef __aarch64__
extern const mo_isa mo_isa_neon;
#endif

#endif
