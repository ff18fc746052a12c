// fused_dual_proj_q4_0: the same x times two Q4_0 weight matrices, in one dispatch.

#include "cpu/kernels.h"
#include "ops/proj_q4_0.h"
#include "../shaders/kernel_params.h"

static const mo_kernel fused_dual_proj_q4_0 = {
    .name = "kernel_fused_dual_proj_q4_0_f32",
    .shader = "fused_dual_proj_q4_0",
    .native = mo_cpu_fused_dual_proj_q4_0,
    .n_arguments = 6,
    .arguments =
        {
            {.kind = MO_ARGUMENT_BUFFER}, // weight_a
            {.kind = MO_ARGUMENT_BUFFER}, // weight_b
            {.kind = MO_ARGUMENT_BUFFER}, // input
            {.kind = MO_ARGUMENT_BUFFER}, // dst_a
            {.kind = MO_ARGUMENT_BUFFER}, // dst_b
            {.kind = MO_ARGUMENT_BYTES, .bytes = sizeof(proj_q4_0_params)},
        },
};

MO_REGISTER_KERNEL(fused_dual_proj_q4_0)

mo_status mo_fused_dual_proj_q4_0(mo_encoder *encoder, const mo_q4_0_matrix *weight_a,
                                  const mo_q4_0_matrix *weight_b, const mo_array *x,
                                  mo_result *out_a, mo_result *out_b) {
    return mo_encode_projection(encoder, &(mo_projection){
                                             .kernel = fused_dual_proj_q4_0.name,
                                             .n_weights = 2,
                                             .weight_names = {"weight_a", "weight_b"},
                                             .result_names = {"out[0]", "out[1]"},
                                             .weights = {weight_a, weight_b},
                                             .x = x,
                                             .results = {out_a, out_b},
                                         });
}
