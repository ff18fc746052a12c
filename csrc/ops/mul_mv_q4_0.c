// mul_mv_q4_0: x times one Q4_0 weight matrix.

#include "cpu/kernels.h"
#include "ops/proj_q4_0.h"
#include "../shaders/kernel_params.h"

static const mo_kernel mul_mv_q4_0 = {
    .name = "kernel_mul_mv_q4_0_f32",
    .shader = "mul_mv_q4_0",
    .native = mo_cpu_mul_mv_q4_0,
    .n_arguments = 4,
    .arguments =
        {
            {.kind = MO_ARGUMENT_BUFFER}, // weight
            {.kind = MO_ARGUMENT_BUFFER}, // input
            {.kind = MO_ARGUMENT_BUFFER}, // dst
            {.kind = MO_ARGUMENT_BYTES, .bytes = sizeof(proj_q4_0_params)},
        },
};

MO_REGISTER_KERNEL(mul_mv_q4_0)

mo_status mo_mul_mv_q4_0(mo_encoder *encoder, const mo_q4_0_matrix *weight, const mo_array *x,
                         mo_result *out) {
    return mo_encode_projection(encoder, &(mo_projection){
                                             .kernel = mul_mv_q4_0.name,
                                             .n_weights = 1,
                                             .weight_names = {"weight"},
                                             .result_names = {"out"},
                                             .weights = {weight},
                                             .x = x,
                                             .results = {out},
                                         });
}
