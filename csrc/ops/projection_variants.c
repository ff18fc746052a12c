// The variants of a projection's kernel, and which of them each device uses.

#include "ops/projection_variants.h"
#include "status.h"

#include <string.h>

#define SIMDGROUP 32

#define PLAIN(id, suffix, n_inputs, rows_per_simdgroup)                                            \
    {.name = #id,                                                                                  \
     .inputs = n_inputs,                                                                           \
     .rows = {PROJ_SIMDGROUPS_PER_THREADGROUP * rows_per_simdgroup,                                \
              PROJ_SIMDGROUPS_PER_THREADGROUP * rows_per_simdgroup},                               \
     .threads = {8, 8, 1},                                                                         \
     .K_divisor = 32,                                                                              \
     .x_alignment = sizeof(float),                                                                 \
     .weight_alignment = 2},

// S partial sums, R rows and M inputs of a lane, D steps on their way, G simdgroups.
#define STAGED(id, suffix, tile) STAGED_TILE(#id, tile)
#define STAGED_TILE(id, S, R, M, D, G)                                                             \
    {.name = id,                                                                                   \
     .inputs = M,                                                                                  \
     .rows = {S * R * G, S * R * G / 2},                                                           \
     .threads = {SIMDGROUP, G, 1},                                                                 \
     .K_divisor = S == 4 ? 64 : 32,                                                                \
     .x_alignment = 16,                                                                            \
     .weight_alignment = S == 4 ? 4 : 2},

static const mo_projection_variant variants[] = {MO_PROJECTION_VARIANTS(PLAIN, STAGED)};

static const mo_projection_classes classes = {.m = {1, 2, 4}, .rows = {2048, 4096, 12288}};

// By class of m, then of rows. Those for CUDA are the fastest on an H200 with the weights in its
// memory; no Mac has tuned those for Metal.
#define V(name) MO_VARIANT_##name
#define FOUR(v)                                                                                    \
    { v, v, v, v }
static struct {
    const char *device;
    _Atomic unsigned char variant[MO_N_M_LIMITS + 1][MO_N_ROW_LIMITS + 1];
} choices[] = {
    {"metal", {FOUR(V(plain_m1)), FOUR(V(plain_m2)), FOUR(V(plain_m4)), FOUR(V(plain_m8))}},
    {"cuda",
     {{V(s1_r2_m1_d8_g8), V(s4_r1_m1_d1_g8), V(s4_r1_m1_d1_g8), V(s4_r2_m1_d1_g8)},
      {V(s1_r2_m2_d4_g8), V(s1_r2_m2_d4_g8), V(s4_r1_m2_d1_g8), V(s4_r1_m2_d1_g8)},
      {V(s1_r2_m4_d2_g8), V(s1_r2_m4_d2_g8), V(s4_r1_m4_d1_g8), V(s4_r2_m4_d1_g8)},
      {V(s1_r2_m8_d4_g8), V(s1_r2_m8_d4_g8), V(s4_r2_m8_d1_g8), V(s4_r2_m8_d1_g8)}}},
};

static _Atomic int forced = -1;

static size_t class_of(int64_t value, const int64_t *limits, size_t n_limits) {
    size_t i = 0;
    while (i < n_limits && value > limits[i])
        i++;
    return i;
}

static size_t m_class(int64_t m) {
    return class_of(m, classes.m, MO_N_M_LIMITS);
}

static _Atomic unsigned char *choice(const char *device, int64_t m, int64_t rows) {
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        if (strcmp(choices[i].device, device) == 0)
            return &choices[i].variant[m_class(m)][class_of(rows, classes.rows, MO_N_ROW_LIMITS)];
    return NULL;
}

const mo_projection_classes *mo_projection_classes_of_shapes(void) {
    return &classes;
}

bool mo_projection_has_choice(const char *device) {
    return choice(device, 1, 1) != NULL;
}

const mo_projection_variant *mo_projection_variant_at(size_t index) {
    return index < MO_N_PROJECTION_VARIANTS ? &variants[index] : NULL;
}

// The number of a variant by its name, -1 if there is none.
static int number_of(const char *name) {
    int i = MO_N_PROJECTION_VARIANTS - 1;
    while (i >= 0 && strcmp(variants[i].name, name) != 0)
        i--;
    return i;
}

static mo_status fail_unknown(const char *name) {
    return mo_fail(MO_INVALID_VALUE, "no projection has a variant named '%s'", name);
}

size_t mo_projection_plain_choice(int64_t m) {
    return m_class(m);
}

size_t mo_projection_choice(const char *device, int64_t m, int64_t rows) {
    const _Atomic unsigned char *chosen = choice(device, m, rows);
    return chosen ? *chosen : mo_projection_plain_choice(m);
}

mo_status mo_projection_set_choice(const char *device, int64_t m, int64_t rows, const char *name) {
    _Atomic unsigned char *chosen = choice(device, m, rows);
    if (!chosen)
        return mo_fail(MO_INVALID_VALUE, "the device '%s' has no choice of kernels", device);
    const int number = number_of(name);
    if (number < 0)
        return fail_unknown(name);
    *chosen = (unsigned char)number;
    return MO_OK;
}

mo_status mo_projection_force_variant(const char *name) {
    const int number = name ? number_of(name) : -1;
    if (name && number < 0)
        return fail_unknown(name);
    forced = number;
    return MO_OK;
}

bool mo_projection_forced_variant(size_t *index) {
    const int now = forced;
    *index = now < 0 ? 0 : (size_t)now;
    return now >= 0;
}
