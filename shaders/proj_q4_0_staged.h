// The body of the projections that keep the input in threadgroup memory: the same canonical order,
// and the same bits, as proj_q4_0.h, for GPUs that would wait for memory or run out of
// instructions.
//
// A lane owns S of the 32 partial sums of a row (1 or 4), so that a simdgroup works on S rows at
// once, or on S R where a lane has R rows. In each step the simdgroup takes 16 blocks of its rows.
// A lane has the weight's words of D steps; as soon as some of them are used, those of D steps
// later are asked for in their place. Words of two or four bytes are loaded, and the nibbles become
// floats without shifts and conversions.
//
// Wanted: x begins at a multiple of 16 bytes; for S = 4 also K a multiple of 64, and a weight that
// begins at a multiple of 4 bytes.

// Steps whose input is in threadgroup memory at once, for M inputs.
template <int S, int M> constexpr int staged_steps() {
    return S == 1 ? 8 / M : M < 4 ? 4 / M : 1;
}

// The float4s of one column of the input's blocks there: two more than needed, so that lanes meet
// different banks. A block has 8 columns.
template <int S, int M> constexpr int staged_pitch() {
    return 16 * staged_steps<S, M>() + 2;
}

template <int S, int M> constexpr int staged_size() {
    return 8 * M * staged_pitch<S, M>();
}

// The float4s of the input that each of 32 G threads copies at once.
template <int S, int M, int G> constexpr int copied_size() {
    return 8 * 16 * staged_steps<S, M>() * M / (32 * G);
}

// Whether they are on their way while the steps before are added: worth the registers where a step
// is long.
constexpr bool copies_ahead(int M) {
    return M == 8;
}

// What a lane has of a row in one step, by its S.
template <int S> struct lane_share;

// Half a block: partial sum t of block t / 2, half t % 2.
template <> struct lane_share<1> {
    ushort d;
    ushort qs[4];
};

// Two blocks: partial sums t to t + 3.
template <> struct lane_share<4> { uint words[9]; };

// Loads the words of a share that partial sum v is the last one to need (of d, the first one of its
// block); those of all partial sums are the whole share.
inline void load_words(device const block_q4_0 *block, short half_of_block, short,
                       thread lane_share<1> &share) {
    device const ushort *words = (device const ushort *)block;
    share.d = words[0];
    UNROLL
    for (short w = 0; w < 4; w++)
        share.qs[w] = words[1 + half_of_block * 4 + w];
}

inline void load_words(device const block_q4_0 *block, short, short v,
                       thread lane_share<4> &share) {
    device const uint *words = (device const uint *)block;
    const short begin = 2 * v + v / 3, end = 2 * v + 2 + v / 2; // 0, 2, 4, 7 to 9
    UNROLL
    for (short w = begin; w < end; w++)
        share.words[w] = words[w];
}

// d of partial sum v of a share.
inline float scale(thread const lane_share<1> &share, short) {
    return float(as_type<half>(share.d));
}

inline float scale(thread const lane_share<4> &share, short v) {
    return float(as_type<half>(ushort(v < 2 ? share.words[0] : share.words[4] >> 16)));
}

// Bytes 4 c to 4 c + 3 of the half block of partial sum v.
inline uint quants(thread const lane_share<1> &share, short, short c) {
    return share.qs[2 * c] | uint(share.qs[2 * c + 1]) << 16;
}

inline uint quants(thread const lane_share<4> &share, short v, short c) {
    const short word = v % 2 * 2 + c;
    return v < 2 ? share.words[word] >> 16 | share.words[word + 1] << 16 : share.words[word + 5];
}

// q - 8 for the nibbles of the low two bytes: low, high, low, high. A nibble becomes a part of the
// mantissa of 2^23, whose bits are `exponent`; what follows is exact.
inline void decode(uint qs, uint exponent, thread float *weights) {
    weights[0] = as_type<float>((qs & 0x000Fu) | exponent) - 8388616.0f;
    weights[1] = fma(as_type<float>((qs & 0x00F0u) | exponent), 0.0625f, -524296.0f);
    weights[2] = fma(as_type<float>((qs & 0x0F00u) | exponent), 0.00390625f, -32776.0f);
    weights[3] = fma(as_type<float>((qs & 0xF000u) | exponent), 0.000244140625f, -2056.0f);
}

// Where block b of the staged ones is in a column. The lanes of four partial sums read every other
// block: the odd ones follow the even ones.
template <int S, int M> inline short staged_place(short b) {
    return S == 4 ? b % 2 * (8 * staged_steps<S, M>()) + b / 2 : b;
}

// One thread's share of the blocks that are staged at once, from block `first` on, of M inputs that
// follow one another. Inputs after `last` are copies of it, and after the row's end there are
// zeros. `t` is the thread's index among the 32 G.
template <int S, int M, int G>
inline void load_inputs(device const float4 *inputs, short last, int blocks_per_row, int first,
                        short t, thread float4 *copied) {
    const short columns = 8 * 16 * staged_steps<S, M>(); // of an input, in the order of the input
    UNROLL
    for (short n = 0; n < copied_size<S, M, G>(); n++) {
        const short i = (n * 32 * G + t) / columns, j = (n * 32 * G + t) % columns;
        // (8 rows of 2^31 floats are 2^32 float4s.)
        const uint place = uint(min(i, last)) * (uint(blocks_per_row) * 8) + uint(first * 8 + j);
        copied[n] = first + j / 8 < blocks_per_row ? inputs[place] : float4(0.0f);
    }
}

template <int S, int M, int G>
inline void store_inputs(thread const float4 *copied, short t, threadgroup float4 *staged) {
    const short columns = 8 * 16 * staged_steps<S, M>();
    UNROLL
    for (short n = 0; n < copied_size<S, M, G>(); n++) {
        const short i = (n * 32 * G + t) / columns, j = (n * 32 * G + t) % columns;
        staged[(i * 8 + j % 8) * staged_pitch<S, M>() + staged_place<S, M>(j / 8)] = copied[n];
    }
}

template <int S, int R, int M> struct partial_sums { float of[S][R][M]; };

// Adds what belongs to partial sum v of the shares of R rows; d are their scales, x is where the
// input of the half block begins.
template <int S, int R, int M>
inline void add_half_block(thread const lane_share<S> *shares, thread const float *d, short v,
                           threadgroup const float4 *x, uint exponent,
                           thread partial_sums<S, R, M> &sums) {
    float acc[R][M];
    UNROLL
    for (short r = 0; r < R; r++) {
        UNROLL
        for (short i = 0; i < M; i++)
            acc[r][i] = 0.0f;
    }
    UNROLL
    for (short c = 0; c < 2; c++) {
        float weights[R][8];
        UNROLL
        for (short r = 0; r < R; r++) {
            const uint qs = quants(shares[r], v, c);
            decode(qs, exponent, weights[r]);
            decode(qs >> 16, exponent, weights[r] + 4);
        }
        UNROLL
        for (short i = 0; i < M; i++) {
            const float4 lo = x[(i * 8 + c) * staged_pitch<S, M>()];
            const float4 hi = x[(i * 8 + c + 4) * staged_pitch<S, M>()];
            UNROLL
            for (short r = 0; r < R; r++) {
                thread const float *w = weights[r];
                float sum = acc[r][i];
                sum = fma(hi.x, w[1], fma(lo.x, w[0], sum));
                sum = fma(hi.y, w[3], fma(lo.y, w[2], sum));
                sum = fma(hi.z, w[5], fma(lo.z, w[4], sum));
                sum = fma(hi.w, w[7], fma(lo.w, w[6], sum));
                acc[r][i] = sum;
            }
        }
    }
    UNROLL
    for (short r = 0; r < R; r++) {
        UNROLL
        for (short i = 0; i < M; i++)
            sums.of[v][r][i] = fma(d[r], acc[r][i], sums.of[v][r][i]);
    }
}

// Adds the shares of one step and loads those of another in their place, if it is within the rows.
// `staged` is where the input of the lane's first block begins; `ahead` is the block to load, from
// the lane's first one on.
template <int S, int R, int M>
inline void add_step(thread lane_share<S> *shares, threadgroup const float4 *staged,
                     thread device const block_q4_0 *const *rows, int ahead, bool loads,
                     short half_of_block, uint exponent, thread partial_sums<S, R, M> &sums) {
    float d[R];
    UNROLL
    for (short v = 0; v < S; v++) {
        const short half_block = S == 1 ? half_of_block : v % 2;
        if (v % 2 == 0) {
            UNROLL
            for (short r = 0; r < R; r++)
                d[r] = scale(shares[r], v);
        }
        add_half_block<S, R, M>(shares, d, v,
                                staged + half_block * 2 * staged_pitch<S, M>() +
                                    staged_place<S, M>(v / 2),
                                exponent, sums);
        if (loads) {
            UNROLL
            for (short r = 0; r < R; r++)
                load_words(rows[r] + ahead, half_of_block, v, shares[r]);
        }
    }
}

// sum_0 of the canonical order, on the lanes that own partial sum 0.
template <int S, int R, int M>
inline float total_in_order(thread partial_sums<S, R, M> &sums, short r, short i) {
    UNROLL
    for (ushort s = 16; s >= S; s /= 2) { // partial sums of other lanes
        UNROLL
        for (short v = 0; v < S; v++)
            sums.of[v][r][i] += simd_shuffle_xor(sums.of[v][r][i], s);
    }
    UNROLL
    for (short s = S / 2; s > 0; s /= 2) { // of this lane
        UNROLL
        for (short v = 0; v < s; v++)
            sums.of[v][r][i] += sums.of[v + s][r][i];
    }
    return sums.of[0][r][i];
}

// One weight times M inputs. `rank` says which of the `simdgroups` of the weight this one is.
//
// Grid: threadgroups (ceil(N / (simdgroups S R)), ceil(m / M), input matrices) of G simdgroups.
template <int S, int R, int M, int D, int G>
inline void project_staged(device const block_q4_0 *weight, device const float *input,
                           device float *dst, constant proj_q4_0_params &params,
                           uint3 threadgroup_position, ushort lane, ushort simdgroup, short rank,
                           short simdgroups, threadgroup float4 *staged) {
    const int z = int(threadgroup_position.z);
    const int blocks_per_row = int(params.ne00 / 32);
    const long row_0 = ((long(threadgroup_position.x) * simdgroups + rank) * S + lane % S) * R;
    const long input_0 = min(long(threadgroup_position.y) * M, long(params.ne1) - 1);
    const short n_rows = short(max(min(long(R), params.ne01 - row_0), 0L));
    const short n_inputs = short(min(long(M), params.ne1 - input_0));
    // Lane l owns partial sums l / S * S to l / S * S + S - 1 of its rows.
    const short block_0 = lane / S * S / 2, half_of_block = S == 1 ? lane % 2 : 0;

    device const block_q4_0 *rows[R];
    UNROLL
    for (short r = 0; r < R; r++) {
        const long row =
            weight_matrix(params, z) * params.ne01 + min(row_0 + r, long(params.ne01) - 1);
        rows[r] = weight + row * blocks_per_row + block_0;
    }
    device const float4 *inputs =
        (device const float4 *)(input + (z * params.ne1 + input_0) * params.ne10);
    // The bits of 2^23, in a register: K is a multiple of 32, which the compiler does not know.
    const uint exponent = 0x4B000000u | (uint(params.ne00) & 31u);

    lane_share<S> shares[D][R];
    UNROLL
    for (short d = 0; d < D; d++) {
        if (d * 16 + block_0 < blocks_per_row) {
            UNROLL
            for (short r = 0; r < R; r++) {
                UNROLL
                for (short v = 0; v < S; v++)
                    load_words(rows[r] + d * 16, half_of_block, v, shares[d][r]);
            }
        }
    }
    const short t = simdgroup * 32 + lane;
    float4 copied[copied_size<S, M, G>()];
    if (copies_ahead(M))
        load_inputs<S, M, G>(inputs, n_inputs - 1, blocks_per_row, 0, t, copied);
    partial_sums<S, R, M> sums;
    UNROLL
    for (short v = 0; v < S; v++) {
        UNROLL
        for (short r = 0; r < R; r++) {
            UNROLL
            for (short i = 0; i < M; i++)
                sums.of[v][r][i] = 0.0f;
        }
    }

    for (int first = 0; first < blocks_per_row; first += 16 * D) {
        UNROLL
        for (short d = 0; d < D; d++) {
            const int step = first + d * 16, ahead = step + 16 * D; // blocks
            const short place = step / 16 % staged_steps<S, M>() * 16;
            if (place == 0 && step < blocks_per_row) {
                if (!copies_ahead(M))
                    load_inputs<S, M, G>(inputs, n_inputs - 1, blocks_per_row, step, t, copied);
                threadgroup_barrier(mem_flags::mem_threadgroup);
                store_inputs<S, M, G>(copied, t, staged);
                threadgroup_barrier(mem_flags::mem_threadgroup);
                if (copies_ahead(M))
                    load_inputs<S, M, G>(inputs, n_inputs - 1, blocks_per_row,
                                         step + 16 * staged_steps<S, M>(), t, copied);
            }
            if (step + block_0 < blocks_per_row)
                add_step<S, R, M>(shares[d], staged + staged_place<S, M>(place + block_0), rows,
                                  ahead, ahead + block_0 < blocks_per_row, half_of_block, exponent,
                                  sums);
        }
    }

    device float *results = dst + (z * params.ne1 + input_0) * params.ne0 + row_0;
    UNROLL
    for (short r = 0; r < R; r++) {
        UNROLL
        for (short i = 0; i < M; i++) {
            const float total = total_in_order<S, R, M>(sums, r, i);
            if (lane < S && r < n_rows && i < n_inputs)
                results[i * params.ne0 + r] = total;
        }
    }
}
