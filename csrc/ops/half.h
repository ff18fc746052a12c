// IEEE half to and from float, in integer arithmetic: the same on every compiler and processor.

#ifndef MLXOPS_HALF_H
#define MLXOPS_HALF_H

#include <stdint.h>
#include <string.h>

static inline float mo_float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t mo_bits_of_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

// Exact. Subnormals included; a NaN keeps its payload.
static inline float mo_half_to_float(uint16_t half) {
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    const uint32_t exponent = (half >> 10) & 31;
    const uint32_t fraction = half & 0x3ff;
    if (exponent == 0) // fraction * 2^-24, which float32 holds exactly
        return mo_float_of_bits(sign | mo_bits_of_float((float)fraction * 0x1p-24f));
    if (exponent == 31)
        return mo_float_of_bits(sign | 0x7f800000 | (fraction << 13));
    return mo_float_of_bits(sign | ((exponent + 127 - 15) << 23) | (fraction << 13));
}

// A finite value, rounded to nearest even; values from 65520 on become infinite.
static inline uint16_t mo_half_of_float(float value) {
    const uint32_t bits = mo_bits_of_float(value);
    const uint16_t sign = (uint16_t)((bits >> 16) & 0x8000);
    const uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude >= 0x477ff000) // 65520
        return sign | 0x7c00;
    if (magnitude < 0x38800000) { // 2^-14: the result is subnormal or zero
        // Adding 0.5 leaves the multiple of 2^-24 in the low bits, rounded by the addition.
        const float shifted = mo_float_of_bits(magnitude) + 0.5f;
        return (uint16_t)(sign | (mo_bits_of_float(shifted) - 0x3f000000));
    }
    const uint32_t odd = (magnitude >> 13) & 1;
    return (uint16_t)(sign | ((magnitude - (112u << 23) + 0xfff + odd) >> 13));
}

#endif
