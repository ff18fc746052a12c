// The part that the single and the dual projection share.

#ifndef MLXOPS_PROJ_Q4_0_H
#define MLXOPS_PROJ_Q4_0_H

#include "ops/projection_variants.h"

// Registers them when the library is loaded.
#define MO_REGISTER_PROJECTION(kernels)                                                            \
    __attribute__((constructor)) static void register_##kernels(void) {                            \
        for (int i = 0; i < MO_N_PROJECTION_VARIANTS; i++)                                         \
            mo_register_kernel(&kernels[i]);                                                       \
    }

// One or two weights of the same x, with the names that messages call them by.
typedef struct mo_projection {
    const mo_kernel *kernels; // of all variants, in their order
    size_t n_weights;
    const char *weight_names[2];
    const char *result_names[2];
    const mo_q4_0_matrix *weights[2];
    const mo_array *x;
    mo_result *results[2];
} mo_projection;

// Checks everything, makes missing result buffers, records one dispatch, or several where the work
// is too much for one command buffer. The kernel's arguments are the weights, x, the results and a
// proj_q4_0_params, in this order.
mo_status mo_encode_projection(mo_encoder *encoder, const mo_projection *projection);

#endif
