// The projections' kernel for AVX2, FMA and F16C, in the canonical order of additions.
//
// A group is 4 blocks, 72 bytes: half h of block p is lane 2 p + h of one register of 8 lanes. The
// canonical order's 32 lanes are four such registers, which the groups of a row take in turn. x is
// arranged to match: [group][step][input][lane].

#ifdef __x86_64__

#include "cpu/isa.h"

#include <cpuid.h>
#include <immintrin.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2,fma,f16c")))
#define INLINE AVX2 static inline __attribute__((always_inline))
// Arrays of registers are registers only where the loops over them are unrolled.
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

// Keeps a compiler from loading a value again for each use, and from another order of instructions.
#define KEEP(value) __asm__ volatile("" : "+x"(value))

#define BLOCK_BYTES MO_Q4_0_BLOCK_BYTES
#define GROUP_BLOCKS 4
#define GROUP_BYTES (GROUP_BLOCKS * BLOCK_BYTES)
#define LANES (2 * GROUP_BLOCKS)
#define STEPS 16
#define GROUP_FLOATS(inputs) (STEPS * (inputs)*LANES)
#define TURNS 4 // groups until all 32 lanes have had a block

#define MAX_ROWS 4

// ---- Loading and decoding ----------------------------------------------------------------------

typedef struct group {
    __m256i nibbles[2]; // [w]: bytes 4 w to 4 w + 3 of each lane's half block
    __m256 d;           // each lane's scale
} group;

INLINE __m256 load_quants_of(const unsigned char *block, const unsigned char *other) {
    const __m128i low = _mm_loadu_si128((const __m128i *)(block + 2));
    const __m128i high = _mm_loadu_si128((const __m128i *)(other + 2));
    return _mm256_castsi256_ps(_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1));
}

INLINE group load_group(const unsigned char *bytes) {
    const unsigned char *block[GROUP_BLOCKS];
    uint16_t d[GROUP_BLOCKS];
    for (int p = 0; p < GROUP_BLOCKS; p++) {
        block[p] = bytes + p * BLOCK_BYTES;
        memcpy(&d[p], block[p], sizeof d[p]);
    }
    // Of each block's four dwords the first and the third, and the second and the fourth.
    const __m256 quants_02 = load_quants_of(block[0], block[2]);
    const __m256 quants_13 = load_quants_of(block[1], block[3]);
    group g;
    g.nibbles[0] = _mm256_castps_si256(_mm256_shuffle_ps(quants_02, quants_13, 0x88));
    g.nibbles[1] = _mm256_castps_si256(_mm256_shuffle_ps(quants_02, quants_13, 0xdd));
    const __m128i halves = _mm_cvtsi64_si128(
        (long long)((uint64_t)d[3] << 48 | (uint64_t)d[2] << 32 | (uint64_t)d[1] << 16 | d[0]));
    g.d = _mm256_cvtph_ps(_mm_unpacklo_epi16(halves, halves));
    return g;
}

// The weights of this step, one in each lane; after the odd one of two the nibbles move on. Bits
// 0 to 3 in the fraction of 2^23, or bits 4 to 7 in that of 2^19, count as the integer q.
INLINE __m256 next_weights(__m256i *nibbles, int step) {
    const __m256i mask = _mm256_set1_epi32(step % 2 ? 0xf0 : 0x0f);
    const __m256 power = _mm256_set1_ps(step % 2 ? 0x1p19f : 0x1p23f);
    const __m256 q_plus_power =
        _mm256_or_ps(_mm256_castsi256_ps(_mm256_and_si256(*nibbles, mask)), power);
    if (step % 2)
        *nibbles = _mm256_srli_epi32(*nibbles, 8);
    return _mm256_sub_ps(q_plus_power, _mm256_set1_ps(step % 2 ? 0x1p19f + 8 : 0x1p23f + 8));
}

// ---- Multiplying -------------------------------------------------------------------------------

// One group of n_rows rows, times n_inputs inputs. sums is [row][input][turn], and begins at the
// group's turn. Lanes from `lanes` on have no block and keep their sums.
INLINE void add_group(int n_rows, int n_inputs, const unsigned char *bytes, size_t row_bytes,
                      int lanes, const float *x, __m256 *sums) {
    group w[MAX_ROWS];
    __m256 acc[MAX_ROWS][MO_MAX_INPUTS];
    UNROLL for (int r = 0; r < n_rows; r++) {
        w[r] = load_group(bytes + (size_t)r * row_bytes);
        UNROLL for (int i = 0; i < n_inputs; i++) acc[r][i] = _mm256_setzero_ps();
    }
    UNROLL for (int step = 0; step < STEPS; step++) {
        __m256 weights[MAX_ROWS];
        UNROLL for (int r = 0; r < n_rows; r++) weights[r] =
            next_weights(&w[r].nibbles[step / 8], step);
        UNROLL for (int i = 0; i < n_inputs; i++) {
            __m256 x_lanes = _mm256_load_ps(x + (step * n_inputs + i) * LANES);
            if (n_rows > 1)
                KEEP(x_lanes);
            UNROLL for (int r = 0; r < n_rows; r++) {
                acc[r][i] = _mm256_fmadd_ps(x_lanes, weights[r], acc[r][i]);
                KEEP(acc[r][i]);
            }
        }
    }
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256 executed = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(lanes), lane));
    UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int i = 0; i < n_inputs; i++) {
        __m256 *sum = &sums[(r * n_inputs + i) * TURNS];
        const __m256 added = _mm256_fmadd_ps(w[r].d, acc[r][i], *sum);
        *sum = lanes == LANES ? added : _mm256_blendv_ps(*sum, added, executed);
    }
}

// Fewer than 4 blocks, those at the end of a row: a copy, with zeros after it.
INLINE void add_last_blocks(int n_rows, int n_inputs, const unsigned char *bytes, size_t row_bytes,
                            int n_blocks, const float *x, __m256 *sums) {
    unsigned char copy[MAX_ROWS][GROUP_BYTES] = {{0}};
    for (int r = 0; r < n_rows; r++)
        memcpy(copy[r], bytes + (size_t)r * row_bytes, (size_t)n_blocks * BLOCK_BYTES);
    add_group(n_rows, n_inputs, copy[0], GROUP_BYTES, 2 * n_blocks, x, sums);
}

// Up to 16 blocks of n_rows rows.
INLINE void add_tile(int n_rows, int n_inputs, const unsigned char *bytes, size_t row_bytes,
                     int64_t n_blocks, const float *x, __m256 *sums) {
    for (int turn = 0; turn < TURNS && n_blocks > 0; turn++, n_blocks -= GROUP_BLOCKS) {
        if (n_blocks >= GROUP_BLOCKS)
            add_group(n_rows, n_inputs, bytes, row_bytes, LANES, x, sums + turn);
        else
            add_last_blocks(n_rows, n_inputs, bytes, row_bytes, (int)n_blocks, x, sums + turn);
        bytes += GROUP_BYTES;
        x += GROUP_FLOATS(n_inputs);
    }
}

// sum_0 after sum_t + sum_(t xor s) for s = 16, 8, 4, 2, 1. Only the sums that reach lane 0.
INLINE float sum_lanes(const __m256 *sums) {
    const __m256 by_16_low = _mm256_add_ps(sums[0], sums[2]);
    const __m256 by_16_high = _mm256_add_ps(sums[1], sums[3]);
    const __m256 by_8 = _mm256_add_ps(by_16_low, by_16_high);
    const __m128 by_4 = _mm_add_ps(_mm256_castps256_ps128(by_8), _mm256_extractf128_ps(by_8, 1));
    const __m128 by_2 = _mm_add_ps(by_4, _mm_movehl_ps(by_4, by_4));
    return _mm_cvtss_f32(_mm_add_ss(by_2, _mm_movehdup_ps(by_2)));
}

INLINE void finish_row(int n_inputs, const __m256 *sums, float *y, int64_t ldy) {
    for (int i = 0; i < n_inputs; i++)
        y[i * ldy] = sum_lanes(sums + TURNS * i);
}

// ---- One or two inputs: as fast as the weights come from memory --------------------------------

// How far ahead of the rows in work the weights are asked for.
#define PREFETCH_BYTES 3072

// n_rows neighbouring rows side by side, up to four chains of additions: one alone would wait for
// itself. One linear stream of prefetches runs ahead of them: the processor's own does not follow
// several rows at once. It ends in the L2 cache: x is in L1, and would be driven out.
INLINE void walk_rows(int n_rows, int n_inputs, const unsigned char *bytes, int64_t n_blocks,
                      const float *x, float *y, int64_t ldy) {
    const size_t row_bytes = (size_t)n_blocks * BLOCK_BYTES;
    const char *ahead = (const char *)bytes + (size_t)n_rows * row_bytes + PREFETCH_BYTES;
    __m256 sums[4 * TURNS];
    UNROLL for (int i = 0; i < n_rows * n_inputs * TURNS; i++) sums[i] = _mm256_setzero_ps();
    for (int64_t left = n_blocks; left > 0; left -= TURNS * GROUP_BLOCKS) {
        UNROLL for (int i = 0; i < n_rows * TURNS * GROUP_BYTES; i += 64)
            _mm_prefetch(ahead + i, _MM_HINT_T1);
        add_tile(n_rows, n_inputs, bytes, row_bytes, left, x, sums);
        ahead += n_rows * TURNS * GROUP_BYTES;
        bytes += TURNS * GROUP_BYTES;
        x += TURNS * GROUP_FLOATS(n_inputs);
    }
    for (int r = 0; r < n_rows; r++)
        finish_row(n_inputs, sums + r * n_inputs * TURNS, y + r, ldy);
}

INLINE void walk(int n_inputs, const unsigned char *rows, int64_t n_rows, int64_t n_blocks,
                 const float *x, float *y, int64_t ldy) {
    const int64_t row_bytes = n_blocks * BLOCK_BYTES;
    int64_t r = 0;
    for (; n_inputs == 1 && r + 4 <= n_rows; r += 4)
        walk_rows(4, n_inputs, rows + r * row_bytes, n_blocks, x, y + r, ldy);
    for (; r + 2 <= n_rows; r += 2)
        walk_rows(2, n_inputs, rows + r * row_bytes, n_blocks, x, y + r, ldy);
    if (r < n_rows)
        walk_rows(1, n_inputs, rows + r * row_bytes, n_blocks, x, y + r, ldy);
}

// ---- More inputs: as fast as the processor multiplies ------------------------------------------

// Tiles of one row, 16 blocks and n_inputs inputs. All rows meet the same 16 blocks' x, which stays
// in the L1 cache, before the next; the sums are in memory meanwhile.
INLINE void tiles(int n_inputs, const unsigned char *rows, int64_t n_rows, int64_t n_blocks,
                  const float *x, float *y, int64_t ldy) {
    const size_t row_bytes = (size_t)n_blocks * BLOCK_BYTES;
    const int64_t row_sums = TURNS * n_inputs;
    const char *ahead = (const char *)rows + (size_t)n_rows * row_bytes; // the next call's rows
    __m256 sums[MO_MAX_ROWS * TURNS * MO_MAX_INPUTS];
    for (int64_t i = 0; i < n_rows * row_sums; i++)
        sums[i] = _mm256_setzero_ps();
    for (int64_t left = n_blocks; left > 0; left -= TURNS * GROUP_BLOCKS) {
        const unsigned char *bytes = rows + (n_blocks - left) * BLOCK_BYTES;
        for (int64_t r = 0; r < n_rows; r++) {
            UNROLL for (int i = 0; i < TURNS * GROUP_BYTES; i += 64)
                _mm_prefetch(ahead + i, _MM_HINT_T1);
            ahead += TURNS * GROUP_BYTES;
            add_tile(1, n_inputs, bytes + (size_t)r * row_bytes, row_bytes, left, x,
                     sums + r * row_sums);
        }
        x += TURNS * GROUP_FLOATS(n_inputs);
    }
    for (int64_t r = 0; r < n_rows; r++)
        finish_row(n_inputs, sums + r * row_sums, y + r, ldy);
}

// ---- The kernel --------------------------------------------------------------------------------

#define FOR_INPUTS(n, call)                                                                        \
    AVX2 static void project_##n(const unsigned char *rows, int64_t n_rows, int64_t n_blocks,      \
                                 const float *x, float *y, int64_t ldy) {                          \
        call;                                                                                      \
    }
FOR_INPUTS(1, walk(1, rows, n_rows, n_blocks, x, y, ldy))
FOR_INPUTS(2, walk(2, rows, n_rows, n_blocks, x, y, ldy))
FOR_INPUTS(3, tiles(3, rows, n_rows, n_blocks, x, y, ldy))
FOR_INPUTS(4, tiles(4, rows, n_rows, n_blocks, x, y, ldy))
FOR_INPUTS(5, tiles(5, rows, n_rows, n_blocks, x, y, ldy))
FOR_INPUTS(6, tiles(6, rows, n_rows, n_blocks, x, y, ldy))
FOR_INPUTS(7, tiles(7, rows, n_rows, n_blocks, x, y, ldy))
FOR_INPUTS(8, tiles(8, rows, n_rows, n_blocks, x, y, ldy))

static void project(const unsigned char *rows, int64_t n_rows, int64_t K, const float *x,
                    int n_inputs, float *y, int64_t ldy) {
    static void (*const for_inputs[MO_MAX_INPUTS])(const unsigned char *, int64_t, int64_t,
                                                   const float *, float *, int64_t) = {
        project_1, project_2, project_3, project_4, project_5, project_6, project_7, project_8};
    for_inputs[n_inputs - 1](rows, n_rows, K / 32, x, y, ldy);
}

// (clang 14 does not know the name "f16c" there.)
static bool has_f16c(void) {
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}

static bool available(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

const mo_isa mo_isa_avx2 = {
    .name = "avx2", .available = available, .lanes = LANES, .speed = 20, .project = project};

#endif
