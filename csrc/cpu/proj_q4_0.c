// The projections in plain C, in the canonical order of additions.
//
// The order of a simdgroup is kept with its 32 partial sums in an array: lane 2 p + h takes the
// half h of the blocks p, p + 16, p + 32 and so on. Several inputs go over a row of the weight
// together, so that each block is decoded once for all of them; each keeps its own sums.

#include "cpu/kernels.h"
#include "cpu/threads.h"
#include "ops/half.h"
#include "../shaders/kernel_params.h"

#include <math.h>
#include <string.h>

#define LANES 32
#define INPUTS_PER_PASS 8

// On x86-64 a compiler may not take for granted that the processor has fma, and calls libm for
// each. With this there is a second version of a function, with the instruction, and the better one
// is chosen when the library is loaded.
#if defined(__x86_64__) && defined(__GLIBC__)
#define WITH_AND_WITHOUT_FMA __attribute__((target_clones("fma", "default")))
#else
#define WITH_AND_WITHOUT_FMA
#endif

static inline void decode_block(const unsigned char *block, float *weights) {
    for (int j = 0; j < 16; j++) {
        weights[j] = (float)((block[2 + j] & 15) - 8);
        weights[j + 16] = (float)((block[2 + j] >> 4) - 8);
    }
}

// One block times 32 elements of x, added to the sums of the two lanes that share the block. Each
// lane's chain of 16 additions depends on itself; the two in turn keep the processor busy.
static inline void add_block(float d, const float *weights, const float *x, float *lanes) {
    float acc_0 = 0.0f, acc_1 = 0.0f;
    for (int j = 0; j < 8; j++) {
        acc_0 = fmaf(x[j], weights[j], acc_0);
        acc_1 = fmaf(x[j + 8], weights[j + 8], acc_1);
        acc_0 = fmaf(x[j + 16], weights[j + 16], acc_0);
        acc_1 = fmaf(x[j + 24], weights[j + 24], acc_1);
    }
    lanes[0] = fmaf(d, acc_0, lanes[0]);
    lanes[1] = fmaf(d, acc_1, lanes[1]);
}

// sum_0 after sum_t + sum_(t xor s) for s = 16, 8, 4, 2, 1. Only the sums that reach lane 0.
static inline float sum_lanes(float *sum) {
    for (int s = LANES / 2; s > 0; s /= 2)
        for (int t = 0; t < s; t++)
            sum[t] += sum[t + s];
    return sum[0];
}

// One row of the weight times n inputs of K elements each, results ldy apart.
WITH_AND_WITHOUT_FMA
static void project_row(const unsigned char *row, const float *x, int64_t n, int64_t K, float *y,
                        int64_t ldy) {
    float sum[INPUTS_PER_PASS][LANES];
    memset(sum, 0, (size_t)n * sizeof *sum); // +0 in every lane
    for (int64_t b = 0; b < K / 32; b++) {
        const unsigned char *block = row + b * MO_Q4_0_BLOCK_BYTES;
        const float d = mo_half_to_float((uint16_t)(block[0] | block[1] << 8));
        float weights[32];
        decode_block(block, weights);
        for (int64_t i = 0; i < n; i++)
            add_block(d, weights, x + i * K + b * 32, &sum[i][b % 16 * 2]);
    }
    for (int64_t i = 0; i < n; i++)
        y[i * ldy] = sum_lanes(sum[i]);
}

typedef struct projection {
    const unsigned char *weights[2];
    const float *x;
    float *results[2];
    const proj_q4_0_params *params;
} projection;

// Rows begin to end of all weights, one weight after the other.
static void project_rows(void *context, size_t begin, size_t end) {
    const projection *p = context;
    const int64_t N = p->params->ne01, K = p->params->ne00, m = p->params->ne1;
    for (size_t r = begin; r < end; r++) {
        const size_t w = r / (size_t)N, n = r % (size_t)N;
        const unsigned char *row = p->weights[w] + n * (size_t)(K / 32) * MO_Q4_0_BLOCK_BYTES;
        for (int64_t i = 0; i < m; i += INPUTS_PER_PASS) {
            const int64_t inputs = m - i < INPUTS_PER_PASS ? m - i : INPUTS_PER_PASS;
            project_row(row, p->x + i * K, inputs, K, p->results[w] + i * N + (int64_t)n, N);
        }
    }
}

static mo_status project(const projection *p, size_t n_weights) {
    mo_parallel_for(project_rows, (void *)p, n_weights * (size_t)p->params->ne01,
                    (size_t)p->params->ne00 * (size_t)p->params->ne1);
    return MO_OK;
}

mo_status mo_cpu_mul_mv_q4_0(const mo_dispatch *dispatch) {
    const projection p = {.weights = {mo_dispatch_buffer(dispatch, 0)},
                          .x = mo_dispatch_buffer(dispatch, 1),
                          .results = {mo_dispatch_buffer(dispatch, 2)},
                          .params = mo_dispatch_bytes(dispatch, 3)};
    return project(&p, 1);
}

mo_status mo_cpu_fused_dual_proj_q4_0(const mo_dispatch *dispatch) {
    const projection p = {
        .weights = {mo_dispatch_buffer(dispatch, 0), mo_dispatch_buffer(dispatch, 1)},
        .x = mo_dispatch_buffer(dispatch, 2),
        .results = {mo_dispatch_buffer(dispatch, 3), mo_dispatch_buffer(dispatch, 4)},
        .params = mo_dispatch_bytes(dispatch, 5)};
    return project(&p, 2);
}
