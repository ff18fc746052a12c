// The projections' kernel in plain C, in the canonical order of additions, for any processor.
//
// The order of a simdgroup is kept with its 32 partial sums in an array: lane 2 p + h takes the
// half h of the blocks p, p + 16, p + 32 and so on. Several inputs go over a row of the weight
// together, so that each block is decoded once for all of them; each keeps its own sums.

#include "cpu/isa.h"
#include "ops/half.h"

#include <math.h>
#include <string.h>

#define LANES 32

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

// One row of the weight times some inputs of K elements each, results ldy apart.
static void project_row(const unsigned char *row, int64_t K, const float *x, int n_inputs, float *y,
                        int64_t ldy) {
    float sum[MO_MAX_INPUTS][LANES];
    memset(sum, 0, (size_t)n_inputs * sizeof *sum); // +0 in every lane
    for (int64_t b = 0; b < K / 32; b++) {
        const unsigned char *block = row + b * MO_Q4_0_BLOCK_BYTES;
        const float d = mo_half_to_float((uint16_t)(block[0] | block[1] << 8));
        float weights[32];
        decode_block(block, weights);
        for (int i = 0; i < n_inputs; i++)
            add_block(d, weights, x + i * K + b * 32, &sum[i][b % 16 * 2]);
    }
    for (int i = 0; i < n_inputs; i++)
        y[i * ldy] = sum_lanes(sum[i]);
}

static void project(const unsigned char *rows, int64_t n_rows, int64_t K, const float *x,
                    int n_inputs, float *y, int64_t ldy) {
    const int64_t row_bytes = K / 32 * MO_Q4_0_BLOCK_BYTES;
    for (int64_t r = 0; r < n_rows; r++)
        project_row(rows + r * row_bytes, K, x, n_inputs, y + r, ldy);
}

static bool available(void) {
    return true;
}

const mo_isa mo_isa_scalar = {
    .name = "scalar", .available = available, .lanes = 0, .speed = 1, .project = project};
