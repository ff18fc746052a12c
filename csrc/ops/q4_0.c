// The Q4_0 format: 32 weights in 18 bytes, d as a little-endian half and then 16 bytes of nibbles.

#include "cpu/interrupt.h"
#include "cpu/threads.h"
#include "ops/half.h"
#include "ops/operand.h"
#include "status.h"

#include <math.h>
#include <stdatomic.h>

#define ELEMENTS MO_Q4_0_BLOCK_ELEMENTS
#define BYTES MO_Q4_0_BLOCK_BYTES

mo_status mo_q4_0_size(int64_t N, int64_t K, size_t *size) {
    if (N < 1 || K < 1)
        return mo_fail(MO_INVALID_VALUE, "%s is %lld; it must be positive", N < 1 ? "N" : "K",
                       (long long)(N < 1 ? N : K));
    if (N > MO_MAX_SIZE || K > MO_MAX_SIZE)
        return mo_fail(MO_INVALID_VALUE, "%s is %lld; it is at most 2^31 - 1",
                       N > MO_MAX_SIZE ? "N" : "K", (long long)(N > MO_MAX_SIZE ? N : K));
    if (K % ELEMENTS != 0)
        return mo_fail(MO_INVALID_VALUE,
                       "K is %lld; it must be a multiple of 32, the elements of "
                       "a Q4_0 block",
                       (long long)K);
    if (__builtin_mul_overflow((size_t)N, (size_t)(K / ELEMENTS) * BYTES, size))
        return mo_fail(MO_INVALID_VALUE,
                       "the size in bytes of a matrix of shape (%lld, %lld) "
                       "overflows",
                       (long long)N, (long long)K);
    return MO_OK;
}

// Whether x can be a block's element of largest magnitude: finite, with a scale that fits a half.
static bool can_scale(float x) {
    return fabsf(x) < 65520.0f * 8.0f;
}

// Quantises one block as ggml does; false if the block cannot be represented. The product and the
// sum of x * (1/d) + 8.5 are rounded one after the other.
static bool quantize_block(const float *x, unsigned char *block) {
    float largest = 0.0f; // with its sign; the first one on a tie
    bool representable = true;
    for (int j = 0; j < ELEMENTS; j++) {
        representable &= can_scale(x[j]);
        if (fabsf(x[j]) > fabsf(largest))
            largest = x[j];
    }
    if (!representable)
        return false;
    const float d = largest / -8.0f;
    const float inverse = 1.0f / d;
    const float id = isfinite(inverse) ? inverse : 0.0f;
    const uint16_t half = mo_half_of_float(d);
    block[0] = (unsigned char)half;
    block[1] = (unsigned char)(half >> 8);
    for (int j = 0; j < ELEMENTS / 2; j++) {
        const int lo = (int)(x[j] * id + 8.5f);
        const int hi = (int)(x[j + 16] * id + 8.5f);
        block[2 + j] = (unsigned char)((lo < 15 ? lo : 15) | ((hi < 15 ? hi : 15) << 4));
    }
    return true;
}

typedef struct quantization {
    const float *values;
    unsigned char *blocks;
    size_t blocks_per_row;
    atomic_llong bad_row; // the first row that cannot be represented; LLONG_MAX: none
} quantization;

static void note_bad_row(quantization *q, long long row) {
    long long first = atomic_load(&q->bad_row);
    while (row < first && !atomic_compare_exchange_weak(&q->bad_row, &first, row))
        ;
}

static void quantize_rows(void *context, size_t begin, size_t end) {
    quantization *q = context;
    for (size_t row = begin; row < end; row++)
        for (size_t b = 0; b < q->blocks_per_row; b++) {
            const size_t index = row * q->blocks_per_row + b;
            if (!quantize_block(q->values + index * ELEMENTS, q->blocks + index * BYTES)) {
                note_bad_row(q, (long long)row);
                return;
            }
        }
}

static mo_status explain_bad_row(const float *row, int64_t K, long long index) {
    for (int64_t k = 0; k < K; k++) {
        if (!isfinite(row[k]))
            return mo_fail(MO_INVALID_VALUE,
                           "row %lld, column %lld is %s; Q4_0 holds finite "
                           "values only",
                           index, (long long)k,
                           isnan(row[k]) ? "NaN"
                           : row[k] > 0  ? "inf"
                                         : "-inf");
        if (!can_scale(row[k]))
            return mo_fail(MO_INVALID_VALUE,
                           "row %lld, column %lld is %g; the largest magnitude "
                           "whose Q4_0 scale fits a half is below 524160",
                           index, (long long)k, (double)row[k]);
    }
    return mo_fail(MO_INVALID_VALUE, "row %lld changed while it was quantised", index);
}

mo_status mo_q4_0_quantize(const float *values, int64_t N, int64_t K, void *blocks) {
    size_t size;
    mo_status status = mo_q4_0_size(N, K, &size);
    if (status != MO_OK)
        return status;
    quantization q = {.values = values,
                      .blocks = blocks,
                      .blocks_per_row = (size_t)(K / ELEMENTS),
                      .bad_row = INT64_MAX};
    mo_begin_polling();
    status = mo_parallel_for(quantize_rows, &q, (size_t)N, (size_t)K);
    if (status != MO_OK)
        return status;
    const long long bad_row = atomic_load(&q.bad_row);
    if (bad_row != INT64_MAX)
        return explain_bad_row(values + bad_row * K, K, bad_row);
    return MO_OK;
}

typedef struct dequantization {
    const unsigned char *blocks;
    size_t blocks_per_row;
    float *values;
} dequantization;

static void dequantize_rows(void *context, size_t begin, size_t end) {
    const dequantization *q = context;
    for (size_t i = begin * q->blocks_per_row; i < end * q->blocks_per_row; i++) {
        const unsigned char *block = q->blocks + i * BYTES;
        float *values = q->values + i * ELEMENTS;
        const float d = mo_half_to_float((uint16_t)(block[0] | block[1] << 8));
        for (int j = 0; j < ELEMENTS / 2; j++) {
            values[j] = d * (float)((block[2 + j] & 15) - 8);
            values[j + 16] = d * (float)((block[2 + j] >> 4) - 8);
        }
    }
}

mo_status mo_q4_0_dequantize(const void *blocks, int64_t N, int64_t K, float *values) {
    dequantization q = {
        .blocks = blocks, .blocks_per_row = (size_t)(K / ELEMENTS), .values = values};
    mo_begin_polling();
    return mo_parallel_for(dequantize_rows, &q, (size_t)N, (size_t)K);
}
