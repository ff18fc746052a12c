// The parameter structs and grid constants of the kernels. C and MSL both include this header, so
// that the host and the kernel cannot disagree.

#ifndef MLXOPS_KERNEL_PARAMS_H
#define MLXOPS_KERNEL_PARAMS_H

#ifndef __METAL_VERSION__
#include <stdint.h>
#endif

// Projections: a threadgroup has 2 simdgroups (8 x 8 threads). The kernels for 1, 2, 4 and 8 inputs
// at a time differ in the rows that one simdgroup computes.
#define PROJ_SIMDGROUPS_PER_THREADGROUP 2
#define PROJ_ROWS_PER_SIMDGROUP 4
#define PROJ_ROWS_PER_SIMDGROUP_M2 4
#define PROJ_ROWS_PER_SIMDGROUP_M4 4
#define PROJ_ROWS_PER_SIMDGROUP_M8 2

// Projections with the input in threadgroup memory (proj_q4_0_staged.h): {partial sums, rows and
// inputs of a lane, steps of 16 blocks that are on their way from memory, simdgroups of a
// threadgroup}, as in their names. For single and dual alike; of a dual projection half of the
// simdgroups work on each weight.
#define PROJ_S1_R2_M1_D8_G8 1, 2, 1, 8, 8
#define PROJ_S4_R1_M1_D1_G8 4, 1, 1, 1, 8
#define PROJ_S4_R2_M1_D1_G8 4, 2, 1, 1, 8
#define PROJ_S1_R2_M2_D4_G8 1, 2, 2, 4, 8
#define PROJ_S4_R1_M2_D1_G8 4, 1, 2, 1, 8
#define PROJ_S4_R2_M2_D1_G8 4, 2, 2, 1, 8
#define PROJ_S1_R2_M4_D2_G8 1, 2, 4, 2, 8
#define PROJ_S4_R1_M4_D1_G8 4, 1, 4, 1, 8
#define PROJ_S4_R2_M4_D1_G8 4, 2, 4, 1, 8
#define PROJ_S1_R2_M8_D4_G8 1, 2, 8, 4, 8
#define PROJ_S4_R2_M8_D1_G8 4, 2, 8, 1, 8

// Function constants of the projections. Where one is not set, the params' value is used.
#define PROJ_FC_NE12 700
#define PROJ_FC_R2 701
#define PROJ_FC_R3 702

// Names as in ggml: ne0x are the sizes of the weight, ne1x of the input, ne0 and ne1 of the result.
// Matrix z of the input meets matrix z % ne12 / r2 + z / ne12 / r3 * ne02 of the weight.
typedef struct proj_q4_0_params {
    int64_t ne00; // K, elements in a row of the weight
    int64_t ne01; // N, rows of the weight
    int64_t ne02; // weight matrices
    int64_t ne10; // K, elements in a row of the input
    int64_t ne12; // input matrices
    int64_t ne0;  // N, elements in a row of the result
    int64_t ne1;  // m, rows of the input and of the result
    uint32_t r2;  // input matrices to one weight matrix, third dimension
    uint32_t r3;  // and fourth
} proj_q4_0_params;

// QKV split: seq rows of qkv_ch = q_sp + k_sp + v_sp channels each. The wide kernel moves this many
// channels at once.
#define QKV_SPLIT_WIDE 4

typedef struct qkv_split_params {
    uint32_t seq;
    uint32_t q_sp;
    uint32_t k_sp;
    uint32_t v_sp;
    uint32_t qkv_ch;
} qkv_split_params;

#endif
