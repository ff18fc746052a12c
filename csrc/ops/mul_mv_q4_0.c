// mul_mv_q4_0: x times one Q4_0 weight matrix.

#include "cpu/kernels.h"
#include "ops/proj_q4_0.h"

#define KERNEL(suffix, shader_suffix)                                                              \
    {                                                                                              \
        .name = "kernel_mul_mv_q4_0_f32" suffix, .shader = "mul_mv_q4_0" shader_suffix,            \
        .native = mo_cpu_mul_mv_q4_0, .n_arguments = 4, .arguments = {                             \
            {.kind = MO_ARGUMENT_INPUT},                                                           \
            {.kind = MO_ARGUMENT_INPUT},                                                           \
            {.kind = MO_ARGUMENT_OUTPUT},                                                          \
            {.kind = MO_ARGUMENT_BYTES, .bytes = sizeof(proj_q4_0_params)}                         \
        }                                                                                          \
    }

// Arguments: weight, input, dst, params.
#define PLAIN(_, suffix, ...) KERNEL(suffix, ""),
#define STAGED(_, suffix, ...) KERNEL(suffix, "_staged"),
static const mo_kernel kernels[] = {MO_PROJECTION_VARIANTS(PLAIN, STAGED)};

MO_REGISTER_PROJECTION(kernels)

mo_status mo_mul_mv_q4_0(mo_encoder *encoder, const mo_q4_0_matrix *weight, const mo_array *x,
                         mo_result *out) {
    return mo_encode_projection(encoder, &(mo_projection){
                                             .kernels = kernels,
                                             .n_weights = 1,
                                             .weight_names = {"weight"},
                                             .result_names = {"out"},
                                             .weights = {weight},
                                             .x = x,
                                             .results = {out},
                                         });
}
