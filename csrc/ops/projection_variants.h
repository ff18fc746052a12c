// The variants of a projection's kernel: all give the same bits, each is the fastest on some device
// for some shapes. Which of them runs is data.

#ifndef MLXOPS_PROJECTION_VARIANTS_H
#define MLXOPS_PROJECTION_VARIANTS_H

#include "encoder.h"
#include "../shaders/kernel_params.h"

// All variants: the name, what the kernel's name ends in, and what kernel_params.h says of it.
// PLAIN is of shaders/proj_q4_0.h, STAGED of shaders/proj_q4_0_staged.h. The first four are the
// plain ones for 1, 2, 4 and 8 inputs; they take any operands.
#define MO_PROJECTION_VARIANTS(PLAIN, STAGED)                                                      \
    PLAIN(plain_m1, "", 1, PROJ_ROWS_PER_SIMDGROUP)                                                \
    PLAIN(plain_m2, "_m2", 2, PROJ_ROWS_PER_SIMDGROUP_M2)                                          \
    PLAIN(plain_m4, "_m4", 4, PROJ_ROWS_PER_SIMDGROUP_M4)                                          \
    PLAIN(plain_m8, "_m8", 8, PROJ_ROWS_PER_SIMDGROUP_M8)                                          \
    STAGED(s1_r2_m1_d8_g8, "_s1_r2_m1_d8_g8", PROJ_S1_R2_M1_D8_G8)                                 \
    STAGED(s4_r1_m1_d1_g8, "_s4_r1_m1_d1_g8", PROJ_S4_R1_M1_D1_G8)                                 \
    STAGED(s4_r2_m1_d1_g8, "_s4_r2_m1_d1_g8", PROJ_S4_R2_M1_D1_G8)                                 \
    STAGED(s1_r2_m2_d4_g8, "_s1_r2_m2_d4_g8", PROJ_S1_R2_M2_D4_G8)                                 \
    STAGED(s4_r1_m2_d1_g8, "_s4_r1_m2_d1_g8", PROJ_S4_R1_M2_D1_G8)                                 \
    STAGED(s4_r2_m2_d1_g8, "_s4_r2_m2_d1_g8", PROJ_S4_R2_M2_D1_G8)                                 \
    STAGED(s1_r2_m4_d2_g8, "_s1_r2_m4_d2_g8", PROJ_S1_R2_M4_D2_G8)                                 \
    STAGED(s4_r1_m4_d1_g8, "_s4_r1_m4_d1_g8", PROJ_S4_R1_M4_D1_G8)                                 \
    STAGED(s4_r2_m4_d1_g8, "_s4_r2_m4_d1_g8", PROJ_S4_R2_M4_D1_G8)                                 \
    STAGED(s1_r2_m8_d4_g8, "_s1_r2_m8_d4_g8", PROJ_S1_R2_M8_D4_G8)                                 \
    STAGED(s4_r2_m8_d1_g8, "_s4_r2_m8_d1_g8", PROJ_S4_R2_M8_D1_G8)

#define MO_VARIANT_NUMBER(name, ...) MO_VARIANT_##name,
enum {
    MO_PROJECTION_VARIANTS(MO_VARIANT_NUMBER, MO_VARIANT_NUMBER) MO_N_PROJECTION_VARIANTS,
};

typedef struct mo_projection_variant {
    const char *name;  // "plain_m2", "s4_r1_m1_d1_g8"
    int64_t inputs;    // rows of x for one pass over the weights
    int64_t rows[2];   // rows of the weight for one threadgroup: of one weight, of each of two
    mo_size threads;   // of one threadgroup
    int64_t K_divisor; // what it wants of the operands
    size_t x_alignment;
    size_t weight_alignment;
} mo_projection_variant;

// Variant `index`, NULL from MO_N_PROJECTION_VARIANTS on. Each projection has its kernels in this
// order.
const mo_projection_variant *mo_projection_variant_at(size_t index);

// Which variant a device uses for m rows of x and `rows` rows of all weights together, if it takes
// the operands; which plain one otherwise.
size_t mo_projection_choice(const char *device, int64_t m, int64_t rows);
size_t mo_projection_plain_choice(int64_t m);

// The classes of shapes that a device chooses for: the largest m, and the largest number of rows of
// all weights, of each but the last, which has no end.
#define MO_N_M_LIMITS 3
#define MO_N_ROW_LIMITS 3

typedef struct mo_projection_classes {
    int64_t m[MO_N_M_LIMITS];
    int64_t rows[MO_N_ROW_LIMITS];
} mo_projection_classes;

const mo_projection_classes *mo_projection_classes_of_shapes(void);

// Whether a device has a choice.
bool mo_projection_has_choice(const char *device);

// Changes the choice for all shapes of the class that m and rows belong to. MO_INVALID_VALUE if the
// device has no choice or there is no such variant.
mo_status mo_projection_set_choice(const char *device, int64_t m, int64_t rows, const char *name);

// Makes every projection of the process use one variant, for tests and measurements; one that does
// not take the operands is then MO_INVALID_VALUE. NULL ends that.
mo_status mo_projection_force_variant(const char *name);

// Whether a variant is forced, and which.
bool mo_projection_forced_variant(size_t *index);

#endif
