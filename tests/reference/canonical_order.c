/* The canonical order, said once more in the plainest C: what every device must equal, bit for bit.
 *
 * Shares nothing with the library. Compile with -O1 -ffp-contract=off and link libm: each fmaf is
 * one rounding, and no other multiplication is joined to an addition.
 */
#include <math.h>
#include <stdint.h>

enum { LANES = 32, BLOCK_VALUES = 32, BLOCK_BYTES = 18, STRIPES = LANES / 2 };

static float half_to_float(uint16_t bits) {
    const int exponent = (bits >> 10) & 31;
    const int fraction = bits & 1023;
    float magnitude;

    if (exponent == 31)
        magnitude = fraction != 0 ? NAN : INFINITY;
    else if (exponent == 0)
        magnitude = ldexpf((float)fraction, -24);
    else
        magnitude = ldexpf((float)(1024 + fraction), exponent - 25);
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

/* One output element: a row of K / 32 blocks times K inputs. */
static float canonical_dot(const uint8_t *row, const float *x, int64_t K) {
    float sum[LANES];

    for (int t = 0; t < LANES; t++) {
        const int il = 8 * (t % 2);

        sum[t] = 0.0F;
        for (int64_t b = t / 2; b < K / BLOCK_VALUES; b += STRIPES) {
            const uint8_t *block = row + b * BLOCK_BYTES;
            const uint8_t *qs = block + 2;
            const float d = half_to_float((uint16_t)(block[0] | block[1] << 8));
            float acc = 0.0F;

            for (int j = 0; j < 8; j++) {
                const int lo = qs[il + j] & 15;
                const int hi = qs[il + j] >> 4;

                acc = fmaf(x[BLOCK_VALUES * b + il + j], (float)lo - 8.0F, acc);
                acc = fmaf(x[BLOCK_VALUES * b + il + j + 16], (float)hi - 8.0F, acc);
            }
            sum[t] = fmaf(d, acc, sum[t]);
        }
    }
    for (int s = 16; s >= 1; s /= 2) {
        float previous[LANES];

        for (int t = 0; t < LANES; t++)
            previous[t] = sum[t];
        for (int t = 0; t < LANES; t++)
            sum[t] = previous[t] + previous[t ^ s];
    }
    return sum[0];
}

/* For m rows of x and n_rows chosen rows of the weight: result[i][k] is x[i] times rows[k]. */
void canonical_order(const uint8_t *blocks, const float *x, int64_t m, int64_t K,
                     const int64_t *rows, int64_t n_rows, float *result) {
    const int64_t row_bytes = K / BLOCK_VALUES * BLOCK_BYTES;

    for (int64_t i = 0; i < m; i++)
        for (int64_t k = 0; k < n_rows; k++)
            result[i * n_rows + k] = canonical_dot(blocks + rows[k] * row_bytes, x + i * K, K);
}
