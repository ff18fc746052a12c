// The body of both projection kernels: NW weight matrices (1 or 2) times the same input, in the
// canonical order of additions. Every result is the same bits on every device: multiply-adds are
// written as fma(), nothing else may be contracted, and the simdgroup is summed by a butterfly of
// fixed order.

#pragma METAL fp contract(off)

#define UNROLL _Pragma("clang loop unroll(full)")

constant int fc_ne12 [[function_constant(PROJ_FC_NE12)]];
constant int fc_r2 [[function_constant(PROJ_FC_R2)]];
constant int fc_r3 [[function_constant(PROJ_FC_R3)]];

// 32 weights d * (q - 8). Low nibble of qs[j] is weight j, high nibble is weight j + 16.
struct block_q4_0 {
    half d;
    uchar qs[16];
};

// All lanes get sum_0 of the canonical order: sum_t + sum_(t xor s) for s = 16, 8, 4, 2, 1.
inline float simd_sum_in_order(float sum) {
    UNROLL
    for (ushort s = 16; s > 0; s /= 2)
        sum += simd_shuffle_xor(sum, s);
    return sum;
}

// The half of a block that a lane owns: 8 bytes from qs, times x[0..7] and x[16..23].
inline float half_block_dot(device const uchar *qs, thread const float *lo,
                            thread const float *hi) {
    float acc = 0.0f;
    UNROLL
    for (short j = 0; j < 8; j++) {
        acc = fma(lo[j], float(qs[j] & 15) - 8.0f, acc);
        acc = fma(hi[j], float(qs[j] >> 4) - 8.0f, acc);
    }
    return acc;
}

// Grid: threadgroups (ceil(N / 8), m, input matrices). Rows from N on are computed from row N - 1
// and not stored, so that no thread reads outside the weight and no simdgroup diverges.
template <int NW>
inline void project(device const block_q4_0 *weight_a, device const block_q4_0 *weight_b,
                    device const float *input, device float *dst_a, device float *dst_b,
                    constant proj_q4_0_params &params, uint3 threadgroup_position, ushort lane,
                    ushort simdgroup) {
    const int ne12 = is_function_constant_defined(fc_ne12) ? fc_ne12 : int(params.ne12);
    const int r2 = is_function_constant_defined(fc_r2) ? fc_r2 : int(params.r2);
    const int r3 = is_function_constant_defined(fc_r3) ? fc_r3 : int(params.r3);
    const int z = int(threadgroup_position.z);
    const long matrix = z % ne12 / r2 + z / ne12 / r3 * params.ne02;

    const long blocks_per_row = params.ne00 / 32;
    const long row_0 =
        (long(threadgroup_position.x) * PROJ_SIMDGROUPS_PER_THREADGROUP + simdgroup) *
        PROJ_ROWS_PER_SIMDGROUP;
    const long input_row = z * params.ne1 + threadgroup_position.y;
    device const float *x = input + input_row * params.ne10;

    device const block_q4_0 *rows[NW][PROJ_ROWS_PER_SIMDGROUP];
    float sum[NW][PROJ_ROWS_PER_SIMDGROUP];
    UNROLL
    for (short r = 0; r < PROJ_ROWS_PER_SIMDGROUP; r++) {
        const long row = matrix * params.ne01 + min(row_0 + r, long(params.ne01) - 1);
        rows[0][r] = weight_a + row * blocks_per_row;
        rows[NW - 1][r] = (NW == 1 ? weight_a : weight_b) + row * blocks_per_row;
        sum[0][r] = 0.0f;
        sum[NW - 1][r] = 0.0f;
    }

    const short il = lane % 2 * 8;
    for (long b = lane / 2; b < blocks_per_row; b += 16) {
        float lo[8], hi[8];
        UNROLL
        for (short j = 0; j < 8; j++) {
            lo[j] = x[b * 32 + il + j];
            hi[j] = x[b * 32 + il + j + 16];
        }
        UNROLL
        for (short w = 0; w < NW; w++) {
            UNROLL
            for (short r = 0; r < PROJ_ROWS_PER_SIMDGROUP; r++) {
                device const block_q4_0 *block = rows[w][r] + b;
                const float acc = half_block_dot(block->qs + il, lo, hi);
                sum[w][r] = fma(float(block->d), acc, sum[w][r]);
            }
        }
    }

    UNROLL
    for (short w = 0; w < NW; w++) {
        device float *dst = (w == 0 ? dst_a : dst_b) + input_row * params.ne0;
        UNROLL
        for (short r = 0; r < PROJ_ROWS_PER_SIMDGROUP; r++) {
            const float total = simd_sum_in_order(sum[w][r]);
            if (lane == 0 && row_0 + r < params.ne01)
                dst[row_0 + r] = total;
        }
    }
}
