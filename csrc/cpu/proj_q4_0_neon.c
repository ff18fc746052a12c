// The projections' kernel for NEON, in the canonical order of additions.
//
// The four lanes of a register are four rows of the weight, not four lanes of the canonical order:
// each of that order's 32 lanes has a register of its own for the sums of four rows. So x is read
// as it is, one element at a time meeting four rows, and blocks at the end of a row need no care.

#ifdef __aarch64__

#include "cpu/isa.h"

#include <arm_neon.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
// Arrays of registers are registers only where the loops over them are unrolled.
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

// Keep a compiler from another order of instructions, for which the registers would not do, and
// from a pointer of its own for each load.
#define KEEP_ORDER(value) __asm__ volatile("" : : "w"(value))
#define KEEP_POINTER(pointer) __asm__("" : "+r"(pointer))

#define BLOCK_BYTES MO_Q4_0_BLOCK_BYTES
#define ROWS 4
#define MAX_QUADS (MO_MAX_ROWS / ROWS)
#define SUMS 32 // of one input: the lanes of the canonical order

// ---- Loading and decoding ----------------------------------------------------------------------

// Four rows of a weight, each of them at the same block.
typedef struct quad {
    const unsigned char *rows[ROWS];
} quad;

// The rows from `first` on. Where there are fewer than four, the last one again instead.
INLINE quad quad_of_rows(const unsigned char *first, int64_t n_rows, size_t row_bytes) {
    quad q;
    for (int r = 0; r < ROWS; r++)
        q.rows[r] = first + (size_t)(r < n_rows ? r : n_rows - 1) * row_bytes;
    return q;
}

typedef struct block {
    uint8x16_t quants[4]; // [2 h + w]: bytes 8 h + 4 w to 8 h + 4 w + 3, each of all four rows
    float32x4_t d;
} block;

INLINE block load_block(const quad *q, int64_t index) {
    uint8x16_t row[ROWS];
    uint16_t d[ROWS];
    UNROLL for (int r = 0; r < ROWS; r++) {
        const unsigned char *bytes = q->rows[r] + index * BLOCK_BYTES;
        memcpy(&d[r], bytes, sizeof d[r]);
        row[r] = vld1q_u8(bytes + 2);
    }
    uint16x4_t halves = vdup_n_u16(d[0]);
    halves = vset_lane_u16(d[1], halves, 1);
    halves = vset_lane_u16(d[2], halves, 2);
    halves = vset_lane_u16(d[3], halves, 3);
    block b;
    b.d = vcvt_f32_f16(vreinterpret_f16_u16(halves));
    const uint8x16_t rows_02_low = vzip1q_u8(row[0], row[2]);
    const uint8x16_t rows_02_high = vzip2q_u8(row[0], row[2]);
    const uint8x16_t rows_13_low = vzip1q_u8(row[1], row[3]);
    const uint8x16_t rows_13_high = vzip2q_u8(row[1], row[3]);
    b.quants[0] = vzip1q_u8(rows_02_low, rows_13_low);
    b.quants[1] = vzip2q_u8(rows_02_low, rows_13_low);
    b.quants[2] = vzip1q_u8(rows_02_high, rows_13_high);
    b.quants[3] = vzip2q_u8(rows_02_high, rows_13_high);
    return b;
}

// The two bytes of the float32 q - 8 that are not always zero.
static const uint8_t upper_bytes[16] = {0xc1, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xbf,
                                        0x00, 0x3f, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40};
static const uint8_t lower_bytes[16] = {0x00, 0xe0, 0xc0, 0xa0, 0x80, 0x40, 0x00, 0x80,
                                        0x00, 0x80, 0x00, 0x40, 0x80, 0xa0, 0xc0, 0xe0};

// Four weights of each row from four nibbles of each row.
INLINE void decode(uint8x16_t nibbles, float32x4_t *weights) {
    const uint8x16_t upper = vqtbl1q_u8(vld1q_u8(upper_bytes), nibbles);
    const uint8x16_t lower = vqtbl1q_u8(vld1q_u8(lower_bytes), nibbles);
    const uint16x8_t zero = vdupq_n_u16(0);
    const uint16x8_t weights_01 = vreinterpretq_u16_u8(vzip1q_u8(lower, upper));
    const uint16x8_t weights_23 = vreinterpretq_u16_u8(vzip2q_u8(lower, upper));
    weights[0] = vreinterpretq_f32_u16(vzip1q_u16(zero, weights_01));
    weights[1] = vreinterpretq_f32_u16(vzip2q_u16(zero, weights_01));
    weights[2] = vreinterpretq_f32_u16(vzip1q_u16(zero, weights_23));
    weights[3] = vreinterpretq_f32_u16(vzip2q_u16(zero, weights_23));
}

// ---- Multiplying -------------------------------------------------------------------------------

// acc + weights * x[j]
INLINE float32x4_t multiply_add(float32x4_t acc, float32x4_t weights, float32x4_t x, int j) {
    switch (j) {
    case 0:
        return vfmaq_laneq_f32(acc, weights, x, 0);
    case 1:
        return vfmaq_laneq_f32(acc, weights, x, 1);
    case 2:
        return vfmaq_laneq_f32(acc, weights, x, 2);
    default:
        return vfmaq_laneq_f32(acc, weights, x, 3);
    }
}

// Bytes 4 w to 4 w + 3 of n_halves halves of a block, the first of them `half`, times n_inputs
// inputs, whose elements for this block begin at x.
INLINE void add_quants(int n_halves, int n_inputs, block b, int half, int w, const float *x,
                       int64_t K, float32x4_t acc[2][MO_MAX_INPUTS]) {
    float32x4_t weights[2][2][4]; // [half][low or high nibble][byte]
    UNROLL for (int h = 0; h < n_halves; h++) {
        decode(vandq_u8(b.quants[2 * (half + h) + w], vdupq_n_u8(15)), weights[h][0]);
        decode(vshrq_n_u8(b.quants[2 * (half + h) + w], 4), weights[h][1]);
    }
    // Four inputs side by side are enough independent chains of additions.
    UNROLL for (int first = 0; first < n_inputs; first += 4) {
        const int end = first + 4 < n_inputs ? first + 4 : n_inputs;
        float32x4_t elements[2][4][2];
        UNROLL for (int i = first; i < end; i++) {
            const float *input = x + i * K;
            KEEP_POINTER(input);
            UNROLL for (int h = 0; h < n_halves; h++)
                UNROLL for (int nibble = 0; nibble < 2; nibble++) elements[h][i - first][nibble] =
                    vld1q_f32(input + 8 * (half + h) + 4 * w + 16 * nibble);
        }
        UNROLL for (int j = 0; j < 4; j++) UNROLL for (int nibble = 0; nibble < 2; nibble++)
            UNROLL for (int i = first; i < end; i++) UNROLL for (int h = 0; h < n_halves; h++) {
            acc[h][i] =
                multiply_add(acc[h][i], weights[h][nibble][j], elements[h][i - first][nibble], j);
            KEEP_ORDER(acc[h][i]);
        }
    }
}

// A block of four rows times n_inputs inputs, whose elements for this block begin at x. sums is
// [input][lane] and begins at the first of the block's two lanes.
INLINE void add_block(int n_inputs, block b, const float *x, int64_t K, float32x4_t *sums) {
    const int n_halves = n_inputs <= 2 ? 2 : 1; // side by side
    UNROLL for (int half = 0; half < 2; half += n_halves) {
        float32x4_t acc[2][MO_MAX_INPUTS];
        UNROLL for (int h = 0; h < n_halves; h++) UNROLL for (int i = 0; i < n_inputs; i++)
            acc[h][i] = vdupq_n_f32(0);
        UNROLL for (int w = 0; w < 2; w++) add_quants(n_halves, n_inputs, b, half, w, x, K, acc);
        UNROLL for (int h = 0; h < n_halves; h++) UNROLL for (int i = 0; i < n_inputs; i++) {
            float32x4_t *sum = &sums[i * SUMS + half + h];
            *sum = vfmaq_f32(*sum, b.d, acc[h][i]);
        }
    }
}

// Blocks begin to end of four rows. The weights at `ahead` are asked for at the same pace: 72 bytes
// at a time, which begin in one cache line and end in the next.
INLINE void add_blocks(int n_inputs, const quad *q, int64_t begin, int64_t end, const float *x,
                       int64_t K, const char *ahead, float32x4_t *sums) {
    for (int64_t index = begin; index < end; index++, ahead += ROWS * BLOCK_BYTES) {
        __builtin_prefetch(ahead);
        __builtin_prefetch(ahead + 64);
        const block b = load_block(q, index);
        add_block(n_inputs, b, x + 32 * index, K, sums + 2 * (index % 16));
    }
}

INLINE void clear(float32x4_t *sums, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        sums[i] = vdupq_n_f32(0);
}

// sum_0 after sum_t + sum_(t xor s) for s = 16, 8, 4, 2, 1. Only the sums that reach lane 0.
INLINE float32x4_t sum_lanes(float32x4_t *sums) {
    UNROLL for (int s = SUMS / 2; s > 0; s /= 2) UNROLL for (int t = 0; t < s; t++) sums[t] =
        vaddq_f32(sums[t], sums[t + s]);
    return sums[0];
}

INLINE void finish_rows(int n_inputs, int64_t n_rows, float32x4_t *sums, float *y, int64_t ldy) {
    const size_t wanted = (size_t)(n_rows < ROWS ? n_rows : ROWS);
    for (int i = 0; i < n_inputs; i++) {
        const float32x4_t results = sum_lanes(sums + i * SUMS);
        memcpy(y + i * ldy, &results, wanted * sizeof *y);
    }
}

// ---- One or two inputs: as fast as the weights are decoded -------------------------------------

// How far ahead of the rows in work the weights are asked for.
#define PREFETCH_BYTES 2048

// One linear stream of prefetches runs ahead of the four rows: the processor's own need not follow
// four at once.
INLINE void walk(int n_inputs, const unsigned char *rows, int64_t n_rows, int64_t K, const float *x,
                 float *y, int64_t ldy) {
    const size_t row_bytes = (size_t)(K / 32) * BLOCK_BYTES;
    float32x4_t sums[2 * SUMS];
    for (int64_t r = 0; r < n_rows; r += ROWS) {
        const unsigned char *first = rows + (size_t)r * row_bytes;
        const quad q = quad_of_rows(first, n_rows - r, row_bytes);
        clear(sums, n_inputs * SUMS);
        add_blocks(n_inputs, &q, 0, K / 32, x, K,
                   (const char *)first + ROWS * row_bytes + PREFETCH_BYTES, sums);
        finish_rows(n_inputs, n_rows - r, sums, y + r, ldy);
    }
}

// ---- More inputs: as fast as the processor multiplies ------------------------------------------

#define TILE_BLOCKS 16

// Tiles of four rows, 16 blocks and n_inputs inputs. All rows meet the same 16 blocks' x, which
// stays in the L1 cache, before the next.
INLINE void tiles(int n_inputs, const unsigned char *rows, int64_t n_rows, int64_t K,
                  const float *x, float *y, int64_t ldy) {
    const int64_t n_blocks = K / 32;
    const size_t row_bytes = (size_t)n_blocks * BLOCK_BYTES;
    const int64_t quad_sums = n_inputs * SUMS, quads = (n_rows + ROWS - 1) / ROWS;
    const char *ahead = (const char *)rows + (size_t)n_rows * row_bytes; // the next call's rows
    float32x4_t sums[MAX_QUADS * MO_MAX_INPUTS * SUMS];
    clear(sums, quads * quad_sums);
    for (int64_t begin = 0; begin < n_blocks; begin += TILE_BLOCKS) {
        const int64_t end = begin + TILE_BLOCKS < n_blocks ? begin + TILE_BLOCKS : n_blocks;
        for (int64_t k = 0; k < quads; k++) {
            const quad q =
                quad_of_rows(rows + (size_t)(k * ROWS) * row_bytes, n_rows - k * ROWS, row_bytes);
            add_blocks(n_inputs, &q, begin, end, x, K, ahead, sums + k * quad_sums);
            ahead += (end - begin) * ROWS * BLOCK_BYTES;
        }
    }
    for (int64_t k = 0; k < quads; k++)
        finish_rows(n_inputs, n_rows - k * ROWS, sums + k * quad_sums, y + k * ROWS, ldy);
}

// ---- The kernel --------------------------------------------------------------------------------

#define FOR_INPUTS(n, call)                                                                        \
    static void project_##n(const unsigned char *rows, int64_t n_rows, int64_t K, const float *x,  \
                            float *y, int64_t ldy) {                                               \
        call;                                                                                      \
    }
FOR_INPUTS(1, walk(1, rows, n_rows, K, x, y, ldy))
FOR_INPUTS(2, walk(2, rows, n_rows, K, x, y, ldy))
FOR_INPUTS(3, tiles(3, rows, n_rows, K, x, y, ldy))
FOR_INPUTS(4, tiles(4, rows, n_rows, K, x, y, ldy))
FOR_INPUTS(5, tiles(5, rows, n_rows, K, x, y, ldy))
FOR_INPUTS(6, tiles(6, rows, n_rows, K, x, y, ldy))
FOR_INPUTS(7, tiles(7, rows, n_rows, K, x, y, ldy))
FOR_INPUTS(8, tiles(8, rows, n_rows, K, x, y, ldy))

static void project(const unsigned char *rows, int64_t n_rows, int64_t K, const float *x,
                    int n_inputs, float *y, int64_t ldy) {
    static void (*const for_inputs[MO_MAX_INPUTS])(const unsigned char *, int64_t, int64_t,
                                                   const float *, float *, int64_t) = {
        project_1, project_2, project_3, project_4, project_5, project_6, project_7, project_8};
    for_inputs[n_inputs - 1](rows, n_rows, K, x, y, ldy);
}

static bool available(void) {
    return true;
}

const mo_isa mo_isa_neon = {
    .name = "neon", .available = available, .lanes = 0, .speed = 12, .project = project};

#endif
