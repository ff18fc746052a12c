// fused_dual_proj_q4_0: the same x times two Q4_0 weight matrices, in one dispatch.

#include "cpu/kernels.h"
#include "ops/proj_q4_0.h"

#define KERNEL(suffix, shader_suffix)                                                              \
    {                                                                                              \
        .name = "kernel_fused_dual_proj_q4_0_f32" suffix,                                          \
        .shader = "fused_dual_proj_q4_0" shader_suffix, .native = mo_cpu_fused_dual_proj_q4_0,     \
        .n_arguments = 6, .arguments = {                                                           \
            {.kind = MO_ARGUMENT_INPUT},                                                           \
            {.kind = MO_ARGUMENT_INPUT},                                                           \
            {.kind = MO_ARGUMENT_INPUT},                                                           \
            {.kind = MO_ARGUMENT_OUTPUT},                                                          \
            {.kind = MO_ARGUMENT_OUTPUT},                                                          \
            {.kind = MO_ARGUMENT_BYTES, .bytes = sizeof(proj_q4_0_params)}                         \
        }                                                                                          \
    }

// Arguments: weight_a, weight_b, input, dst_a, dst_b, params.
#define PLAIN(_, suffix, ...) KERNEL(suffix, ""),
#define STAGED(_, suffix, ...) KERNEL(suffix, "_staged"),
static const mo_kernel kernels[] = {MO_PROJECTION_VARIANTS(PLAIN, STAGED)};

MO_REGISTER_PROJECTION(kernels)

mo_status mo_fused_dual_proj_q4_0(mo_encoder *encoder, const mo_q4_0_matrix *weight_a,
                                  const mo_q4_0_matrix *weight_b, const mo_array *x,
                                  mo_result *out_a, mo_result *out_b) {
    return mo_encode_projection(encoder, &(mo_projection){
                                             .kernels = kernels,
                                             .n_weights = 2,
                                             .weight_names = {"weight_a", "weight_b"},
                                             .result_names = {"out[0]", "out[1]"},
                                             .weights = {weight_a, weight_b},
                                             .x = x,
                                             .results = {out_a, out_b},
                                         });
}
