// The projections' kernel for AVX-512 (F, BW, DQ, VL), in the canonical order of additions.
//
// A group is 8 blocks, 144 bytes: half h of block p is lane 2 p + h of one register of 16 lanes.
// Of the canonical order's 32 lanes, even groups are the first 16 and odd groups the others. x is
// arranged to match: [group][step][input][lane].

#ifdef __x86_64__

#include "cpu/isa.h"

#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define INLINE AVX512 static inline __attribute__((always_inline))
// Arrays of registers are registers only where the loops over them are unrolled.
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

// Keeps a compiler from loading a value again for each use, and from another order of instructions:
// either costs a sixth of the speed.
#define KEEP(value) __asm__ volatile("" : "+v"(value))

#define BLOCK_BYTES MO_Q4_0_BLOCK_BYTES
#define GROUP_BLOCKS 8
#define GROUP_BYTES (GROUP_BLOCKS * BLOCK_BYTES)
#define LANES (2 * GROUP_BLOCKS)
#define STEPS 16
#define GROUP_FLOATS(inputs) (STEPS * (inputs)*LANES)

#define MAX_ROWS 4

// ---- Loading and decoding ----------------------------------------------------------------------

typedef struct group {
    __m512i nibbles[2]; // [w]: bytes 4 w to 4 w + 3 of each lane's half block
    __m512 d;           // each lane's scale
} group;

// The 16-bit words of a group that hold bytes 4 w to 4 w + 3 of both halves of a block. Block 7 has
// its quants in the last 16 bytes, which load_group puts there in another way.
#define QUANTS(p, w)                                                                               \
    9 * (p) + 2 * (w) + 1, 9 * (p) + 2 * (w) + 2, 9 * (p) + 2 * (w) + 5, 9 * (p) + 2 * (w) + 6
#define QUANTS_OF_GROUP(w)                                                                         \
    {                                                                                              \
        QUANTS(0, w), QUANTS(1, w), QUANTS(2, w), QUANTS(3, w), QUANTS(4, w), QUANTS(5, w),        \
            QUANTS(6, w)                                                                           \
    }
static const uint16_t quant_words[2][32]
    __attribute__((aligned(64))) = {QUANTS_OF_GROUP(0), QUANTS_OF_GROUP(1)};
static const uint16_t scale_words[32]
    __attribute__((aligned(64))) = {0, 0, 9, 9, 18, 18, 27, 27, 36, 36, 45, 45, 54, 54, 63, 63};

// The first n_blocks of a group; the bytes after them are not read.
INLINE group load_group(const unsigned char *bytes, int n_blocks) {
    __m512i first, second, last;
    if (n_blocks == GROUP_BLOCKS) {
        first = _mm512_loadu_si512(bytes);
        second = _mm512_loadu_si512(bytes + 64);
        last = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(bytes + 128)));
    } else { // seven blocks, 63 words, at most
        const uint64_t words = ((uint64_t)1 << n_blocks * (BLOCK_BYTES / 2)) - 1;
        first = _mm512_maskz_loadu_epi16((__mmask32)words, bytes);
        second = _mm512_maskz_loadu_epi16((__mmask32)(words >> 32), bytes + 64);
        last = _mm512_setzero_si512();
    }
    KEEP(first);
    KEEP(second);
    KEEP(last);
    const __m512i words_0 = _mm512_load_si512(quant_words[0]);
    const __m512i words_1 = _mm512_load_si512(quant_words[1]);
    const __m512i words_d = _mm512_load_si512(scale_words);
    const __mmask16 block_7 = 0xc000;
    group g;
    g.nibbles[0] = _mm512_permutex2var_epi16(first, words_0, second);
    g.nibbles[1] = _mm512_permutex2var_epi16(first, words_1, second);
    g.nibbles[0] = _mm512_mask_shuffle_epi32(g.nibbles[0], block_7, last, _MM_PERM_CAAA);
    g.nibbles[1] = _mm512_mask_shuffle_epi32(g.nibbles[1], block_7, last, _MM_PERM_DBAA);
    g.d =
        _mm512_cvtph_ps(_mm512_castsi512_si256(_mm512_permutex2var_epi16(first, words_d, second)));
    return g;
}

// The weight of the lowest 4 bits of each lane.
INLINE __m512 look_up(__m512i nibbles) {
    const __m512 values = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    return _mm512_permutexvar_ps(nibbles, values);
}

// The weight of bits 4 to 7 of each lane: in the fraction of 2^19 they count as the integer q.
INLINE __m512 subtract(__m512i nibbles) {
    const __m512i q_plus_power =
        _mm512_ternarylogic_epi32(nibbles, _mm512_set1_epi32(0xf0),
                                  _mm512_castps_si512(_mm512_set1_ps(0x1p19f)), 0xea); // a & b | c
    return _mm512_sub_ps(_mm512_castsi512_ps(q_plus_power), _mm512_set1_ps(0x1p19f + 8));
}

// The weights of this step, one in each lane, and the nibbles moved on to the next one. For one
// input the decoding is most of the work: both ways in turn spread it over more of the processor's
// units, which is a fourteenth faster. With more inputs the look-ups find room beside the
// additions.
INLINE __m512 next_weights(__m512i *nibbles, int step, int n_inputs) {
    const bool alternate = n_inputs == 1;
    const __m512 weights = alternate && step % 2 ? subtract(*nibbles) : look_up(*nibbles);
    if (!alternate)
        *nibbles = _mm512_srli_epi32(*nibbles, 4);
    else if (step % 2)
        *nibbles = _mm512_srli_epi32(*nibbles, 8);
    return weights;
}

// ---- Multiplying -------------------------------------------------------------------------------

// n_groups groups of n_rows rows, times n_inputs inputs: one group, or an even one and the odd one
// after it. sums is [row][input][2]; for one group it begins at that of even or of odd groups.
// Of each group the first n_blocks; lanes without a block keep their sums.
INLINE void add_groups(int n_rows, int n_groups, int n_inputs, const unsigned char *bytes,
                       size_t row_bytes, int n_blocks, const float *x, __m512 *sums) {
    group w[MAX_ROWS][2];
    __m512 acc[MAX_ROWS][2][MO_MAX_INPUTS];
    // All rows load x anew: held over the loop of the rows, it would be in memory just the same,
    // and push the nibbles out of the registers.
    __asm__ volatile("" : "+r"(x));
    UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int g = 0; g < n_groups; g++) {
        w[r][g] = load_group(bytes + (size_t)r * row_bytes + g * GROUP_BYTES, n_blocks);
        UNROLL for (int i = 0; i < n_inputs; i++) acc[r][g][i] = _mm512_setzero_ps();
    }
    UNROLL for (int step = 0; step < STEPS; step++) UNROLL for (int g = 0; g < n_groups; g++) {
        const float *step_x = x + g * GROUP_FLOATS(n_inputs) + step * n_inputs * LANES;
        __m512 weights[MAX_ROWS];
        UNROLL for (int r = 0; r < n_rows; r++) {
            weights[r] = next_weights(&w[r][g].nibbles[step / 8], step, n_inputs);
            KEEP(weights[r]);
        }
        UNROLL for (int i = 0; i < n_inputs; i++) {
            __m512 lanes = _mm512_load_ps(step_x + i * LANES);
            KEEP(lanes);
            UNROLL for (int r = 0; r < n_rows; r++) {
                acc[r][g][i] = _mm512_fmadd_ps(lanes, weights[r], acc[r][g][i]);
                KEEP(acc[r][g][i]);
            }
        }
    }
    const __mmask16 executed = (__mmask16)((1 << 2 * n_blocks) - 1);
    UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int g = 0; g < n_groups; g++)
        UNROLL for (int i = 0; i < n_inputs; i++) {
        __m512 *sum = &sums[(r * n_inputs + i) * 2 + g];
        *sum = _mm512_mask3_fmadd_ps(w[r][g].d, acc[r][g][i], *sum, executed);
    }
}

// sum_0 after sum_t + sum_(t xor s) for s = 16, 8, 4, 2, 1. Only the sums that reach lane 0.
INLINE float sum_lanes(const __m512 *sums) {
    const __m512 by_16 = _mm512_add_ps(sums[0], sums[1]);
    const __m256 by_8 =
        _mm256_add_ps(_mm512_castps512_ps256(by_16), _mm512_extractf32x8_ps(by_16, 1));
    const __m128 by_4 = _mm_add_ps(_mm256_castps256_ps128(by_8), _mm256_extractf128_ps(by_8, 1));
    const __m128 by_2 = _mm_add_ps(by_4, _mm_movehl_ps(by_4, by_4));
    return _mm_cvtss_f32(_mm_add_ss(by_2, _mm_movehdup_ps(by_2)));
}

// Fewer than 16 blocks, those at the end of a row: an even group and perhaps an odd one.
INLINE void add_last_blocks(int n_rows, int n_inputs, const unsigned char *bytes, size_t row_bytes,
                            int n_blocks, const float *x, __m512 *sums) {
    const int even = n_blocks < GROUP_BLOCKS ? n_blocks : GROUP_BLOCKS;
    if (even > 0)
        add_groups(n_rows, 1, n_inputs, bytes, row_bytes, even, x, sums);
    if (n_blocks > even)
        add_groups(n_rows, 1, n_inputs, bytes + GROUP_BYTES, row_bytes, n_blocks - even,
                   x + GROUP_FLOATS(n_inputs), sums + 1);
}

INLINE void finish_row(int n_inputs, const __m512 *sums, float *y, int64_t ldy) {
    UNROLL for (int i = 0; i < n_inputs; i++) y[i * ldy] = sum_lanes(sums + 2 * i);
}

// ---- One or two inputs: as fast as the weights come from memory --------------------------------

// How far ahead of the rows in work the weights are asked for.
#define PREFETCH_BYTES 4096

// n_rows neighbouring rows side by side, even and odd groups in turn: enough independent chains of
// additions to fill the processor, all sums in registers. One linear stream of prefetches runs
// ahead of them: the processor's own does not follow two rows at once. It ends in the L2 cache: in
// L1, which x fills at m K = 8192, weights and x would drive each other out.
INLINE void walk_rows(int n_rows, int n_inputs, const unsigned char *bytes, int64_t n_blocks,
                      const float *x, float *y, int64_t ldy) {
    const size_t row_bytes = (size_t)n_blocks * BLOCK_BYTES;
    const char *ahead = (const char *)bytes + (size_t)n_rows * row_bytes + PREFETCH_BYTES;
    __m512 sums[2 * 2 * 2];
    UNROLL for (int i = 0; i < n_rows * n_inputs * 2; i++) sums[i] = _mm512_setzero_ps();
    int64_t left = n_blocks;
    for (; left >= 2 * GROUP_BLOCKS; left -= 2 * GROUP_BLOCKS) {
        UNROLL for (int i = 0; i < n_rows * 2 * GROUP_BYTES; i += 64)
            _mm_prefetch(ahead + i, _MM_HINT_T1);
        add_groups(n_rows, 2, n_inputs, bytes, row_bytes, GROUP_BLOCKS, x, sums);
        ahead += n_rows * 2 * GROUP_BYTES;
        bytes += 2 * GROUP_BYTES;
        x += 2 * GROUP_FLOATS(n_inputs);
    }
    add_last_blocks(n_rows, n_inputs, bytes, row_bytes, (int)left, x, sums);
    UNROLL for (int r = 0; r < n_rows; r++)
        finish_row(n_inputs, sums + 2 * r * n_inputs, y + r, ldy);
}

INLINE void walk(int n_inputs, const unsigned char *rows, int64_t n_rows, int64_t n_blocks,
                 const float *x, float *y, int64_t ldy) {
    const int64_t row_bytes = n_blocks * BLOCK_BYTES;
    int64_t r = 0;
    for (; r + 2 <= n_rows; r += 2)
        walk_rows(2, n_inputs, rows + r * row_bytes, n_blocks, x, y + r, ldy);
    if (r < n_rows)
        walk_rows(1, n_inputs, rows + r * row_bytes, n_blocks, x, y + r, ldy);
}

// ---- More inputs: as fast as the processor multiplies ------------------------------------------

// Up to 16 blocks of n_rows rows.
INLINE void add_tile(int n_rows, int n_inputs, const unsigned char *bytes, size_t row_bytes,
                     int64_t n_blocks, const float *x, __m512 *sums) {
    if (n_blocks < 2 * GROUP_BLOCKS) {
        add_last_blocks(n_rows, n_inputs, bytes, row_bytes, (int)n_blocks, x, sums);
        return;
    }
    add_groups(n_rows, 1, n_inputs, bytes, row_bytes, GROUP_BLOCKS, x, sums);
    add_groups(n_rows, 1, n_inputs, bytes + GROUP_BYTES, row_bytes, GROUP_BLOCKS,
               x + GROUP_FLOATS(n_inputs), sums + 1);
}

// Tiles of tile_rows rows, 16 blocks and n_inputs inputs. All rows meet the same 16 blocks' x,
// which stays in the L1 cache, before the next; the sums are in memory meanwhile.
INLINE void tiles(int tile_rows, int n_inputs, const unsigned char *rows, int64_t n_rows,
                  int64_t n_blocks, const float *x, float *y, int64_t ldy) {
    const size_t row_bytes = (size_t)n_blocks * BLOCK_BYTES;
    const int64_t row_sums = 2 * n_inputs;
    const char *ahead = (const char *)rows + (size_t)n_rows * row_bytes; // the next call's rows
    __m512 sums[MO_MAX_ROWS * 2 * MO_MAX_INPUTS];
    for (int64_t i = 0; i < n_rows * row_sums; i++)
        sums[i] = _mm512_setzero_ps();
    for (int64_t left = n_blocks; left > 0; left -= 2 * GROUP_BLOCKS) {
        const unsigned char *bytes = rows + (n_blocks - left) * BLOCK_BYTES;
        int64_t r = 0;
        for (; r + tile_rows <= n_rows; r += tile_rows) {
            UNROLL for (int i = 0; i < tile_rows * 2 * GROUP_BYTES; i += 64)
                _mm_prefetch(ahead + i, _MM_HINT_T1);
            ahead += tile_rows * 2 * GROUP_BYTES;
            add_tile(tile_rows, n_inputs, bytes + (size_t)r * row_bytes, row_bytes, left, x,
                     sums + r * row_sums);
        }
        for (; r < n_rows; r++)
            add_tile(1, n_inputs, bytes + (size_t)r * row_bytes, row_bytes, left, x,
                     sums + r * row_sums);
        x += 2 * GROUP_FLOATS(n_inputs);
    }
    for (int64_t r = 0; r < n_rows; r++)
        finish_row(n_inputs, sums + r * row_sums, y + r, ldy);
}

// ---- The kernel --------------------------------------------------------------------------------

#define FOR_INPUTS(n, call)                                                                        \
    AVX512 static void project_##n(const unsigned char *rows, int64_t n_rows, int64_t n_blocks,    \
                                   const float *x, float *y, int64_t ldy) {                        \
        call;                                                                                      \
    }
FOR_INPUTS(1, walk(1, rows, n_rows, n_blocks, x, y, ldy))
FOR_INPUTS(2, walk(2, rows, n_rows, n_blocks, x, y, ldy))
FOR_INPUTS(3, tiles(4, 3, rows, n_rows, n_blocks, x, y, ldy))
FOR_INPUTS(4, tiles(4, 4, rows, n_rows, n_blocks, x, y, ldy))
FOR_INPUTS(5, tiles(2, 5, rows, n_rows, n_blocks, x, y, ldy))
FOR_INPUTS(6, tiles(2, 6, rows, n_rows, n_blocks, x, y, ldy))
FOR_INPUTS(7, tiles(2, 7, rows, n_rows, n_blocks, x, y, ldy))
FOR_INPUTS(8, tiles(2, 8, rows, n_rows, n_blocks, x, y, ldy))

static void project(const unsigned char *rows, int64_t n_rows, int64_t K, const float *x,
                    int n_inputs, float *y, int64_t ldy) {
    static void (*const for_inputs[MO_MAX_INPUTS])(const unsigned char *, int64_t, int64_t,
                                                   const float *, float *, int64_t) = {
        project_1, project_2, project_3, project_4, project_5, project_6, project_7, project_8};
    for_inputs[n_inputs - 1](rows, n_rows, K / 32, x, y, ldy);
}

static bool available(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

const mo_isa mo_isa_avx512 = {
    .name = "avx512", .available = available, .lanes = LANES, .speed = 32, .project = project};

#endif
