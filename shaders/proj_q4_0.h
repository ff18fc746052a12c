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

// Which matrix of the weight meets matrix z of the input.
inline long weight_matrix(constant proj_q4_0_params &params, int z) {
    const int ne12 = is_function_constant_defined(fc_ne12) ? fc_ne12 : int(params.ne12);
    const int r2 = is_function_constant_defined(fc_r2) ? fc_r2 : int(params.r2);
    const int r3 = is_function_constant_defined(fc_r3) ? fc_r3 : int(params.r3);
    return z % ne12 / r2 + z / ne12 / r3 * params.ne02;
}

// NW weights (1 or 2), NR rows for each simdgroup, NI rows of the input for each pass over the
// weights: each weight is read and decoded once for the NI.
//
// Grid: threadgroups (ceil(N / (2 NR)), ceil(m / NI), input matrices). Rows of the weight from N on
// and of the input from m on are computed from the last row and not stored, so that no thread reads
// outside its buffers and no simdgroup diverges.
template <int NW, int NR, int NI>
inline void project(device const block_q4_0 *weight_a, device const block_q4_0 *weight_b,
                    device const float *input, device float *dst_a, device float *dst_b,
                    constant proj_q4_0_params &params, uint3 threadgroup_position, ushort lane,
                    ushort simdgroup) {
    const int z = int(threadgroup_position.z);
    const long matrix = weight_matrix(params, z);
    const long blocks_per_row = params.ne00 / 32;
    const long row_0 =
        (long(threadgroup_position.x) * PROJ_SIMDGROUPS_PER_THREADGROUP + simdgroup) * NR;
    const long input_0 = long(threadgroup_position.y) * NI;

    device const block_q4_0 *rows[NW][NR];
    UNROLL
    for (short r = 0; r < NR; r++) {
        const long row = matrix * params.ne01 + min(row_0 + r, long(params.ne01) - 1);
        rows[0][r] = weight_a + row * blocks_per_row;
        rows[NW - 1][r] = (NW == 1 ? weight_a : weight_b) + row * blocks_per_row;
    }
    device const float *inputs[NI];
    UNROLL
    for (short i = 0; i < NI; i++)
        inputs[i] = input + (z * params.ne1 + min(input_0 + i, long(params.ne1) - 1)) * params.ne10;

    float sum[NW][NR][NI];
    UNROLL
    for (short w = 0; w < NW; w++) {
        UNROLL
        for (short r = 0; r < NR; r++) {
            UNROLL
            for (short i = 0; i < NI; i++)
                sum[w][r][i] = 0.0f;
        }
    }

    // The half of a block that a lane owns: 8 bytes of qs from il on, times x[il...] and
    // x[il + 16...].
    const short il = lane % 2 * 8;
    for (long b = lane / 2; b < blocks_per_row; b += 16) {
        float acc[NW][NR][NI];
        UNROLL
        for (short w = 0; w < NW; w++) {
            UNROLL
            for (short r = 0; r < NR; r++) {
                UNROLL
                for (short i = 0; i < NI; i++)
                    acc[w][r][i] = 0.0f;
            }
        }
        UNROLL
        for (short j = 0; j < 8; j++) {
            float lo[NI], hi[NI];
            UNROLL
            for (short i = 0; i < NI; i++) {
                lo[i] = inputs[i][b * 32 + il + j];
                hi[i] = inputs[i][b * 32 + il + j + 16];
            }
            UNROLL
            for (short w = 0; w < NW; w++) {
                UNROLL
                for (short r = 0; r < NR; r++) {
                    const uchar q = rows[w][r][b].qs[il + j];
                    UNROLL
                    for (short i = 0; i < NI; i++) {
                        acc[w][r][i] = fma(lo[i], float(q & 15) - 8.0f, acc[w][r][i]);
                        acc[w][r][i] = fma(hi[i], float(q >> 4) - 8.0f, acc[w][r][i]);
                    }
                }
            }
        }
        UNROLL
        for (short w = 0; w < NW; w++) {
            UNROLL
            for (short r = 0; r < NR; r++) {
                const float d = float(rows[w][r][b].d);
                UNROLL
                for (short i = 0; i < NI; i++)
                    sum[w][r][i] = fma(d, acc[w][r][i], sum[w][r][i]);
            }
        }
    }

    UNROLL
    for (short w = 0; w < NW; w++) {
        device float *dst = w == 0 ? dst_a : dst_b;
        UNROLL
        for (short r = 0; r < NR; r++) {
            UNROLL
            for (short i = 0; i < NI; i++) {
                const float total = simd_sum_in_order(sum[w][r][i]);
                if (lane == 0 && row_0 + r < params.ne01 && input_0 + i < params.ne1)
                    dst[(z * params.ne1 + input_0 + i) * params.ne0 + row_0 + r] = total;
            }
        }
    }
}
