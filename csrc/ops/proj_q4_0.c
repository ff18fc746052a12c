#include "ops/proj_q4_0.h"
#include "ops/operand.h"
#include "status.h"
#include "../shaders/kernel_params.h"

#define ROWS_PER_THREADGROUP (PROJ_ROWS_PER_SIMDGROUP * PROJ_SIMDGROUPS_PER_THREADGROUP)

static mo_status check_weight(const char *name, const mo_q4_0_matrix *weight, size_t *needed) {
    mo_status status = mo_q4_0_size(weight->N, weight->K, needed);
    if (status != MO_OK)
        return status;
    const size_t size = mo_buffer_size(weight->buffer);
    const size_t there = weight->offset < size ? size - weight->offset : 0;
    if (*needed > there)
        return mo_fail(MO_INVALID_VALUE,
                       "the buffer of %s is too small: shape (%lld, %lld) needs "
                       "%zu bytes, %zu are there",
                       name, (long long)weight->N, (long long)weight->K, *needed, there);
    return MO_OK;
}

static mo_status check_weights(const mo_projection *p, size_t *weight_size) {
    for (size_t i = 0; i < p->n_weights; i++) {
        const mo_status status = check_weight(p->weight_names[i], p->weights[i], weight_size);
        if (status != MO_OK)
            return status;
    }
    const mo_q4_0_matrix *a = p->weights[0];
    const mo_q4_0_matrix *b = p->weights[p->n_weights - 1];
    if (a->N != b->N || a->K != b->K)
        return mo_fail(MO_INVALID_VALUE,
                       "%s has shape (%lld, %lld), %s has (%lld, %lld); they "
                       "must be the same",
                       p->weight_names[0], (long long)a->N, (long long)a->K, p->weight_names[1],
                       (long long)b->N, (long long)b->K);
    return MO_OK;
}

static mo_status check_x(const mo_projection *p, int64_t *m) {
    const mo_status status = mo_count_rows("x", p->x, "m", m);
    if (status != MO_OK)
        return status;
    const int64_t K = p->weights[0]->K;
    char text[128];
    if (p->x->shape[p->x->ndim - 1] != K)
        return mo_fail(MO_INVALID_VALUE,
                       "x has shape %s, %s has shape (%lld, %lld); the last "
                       "dimension of x must be K = %lld",
                       mo_shape_text(p->x->ndim, p->x->shape, text, sizeof text),
                       p->weight_names[0], (long long)p->weights[0]->N, (long long)K, (long long)K);
    return mo_check_array_size("x", p->x);
}

static mo_status check_results(const mo_projection *p, size_t weight_size) {
    mo_extent results[2], operands[3];
    for (size_t i = 0; i < p->n_weights; i++) {
        const mo_status status =
            mo_check_result(p->result_names[i], p->results[i], p->x, p->weights[0]->N);
        if (status != MO_OK)
            return status;
        results[i] = mo_extent_of_array(p->result_names[i], p->results[i]);
        operands[i] = (mo_extent){.name = p->weight_names[i],
                                  .buffer = p->weights[i]->buffer,
                                  .offset = p->weights[i]->offset,
                                  .size = weight_size};
    }
    operands[p->n_weights] = mo_extent_of_array("x", p->x);
    return mo_check_overlap(results, p->n_weights, operands, p->n_weights + 1);
}

static mo_status record(mo_encoder *encoder, const mo_projection *p, int64_t m) {
    const int64_t N = p->weights[0]->N, K = p->weights[0]->K;
    const proj_q4_0_params params = {.ne00 = K,
                                     .ne01 = N,
                                     .ne02 = 1,
                                     .ne10 = K,
                                     .ne12 = 1,
                                     .ne0 = N,
                                     .ne1 = m,
                                     .r2 = 1,
                                     .r3 = 1};
    const mo_function_constant constants[] = {{PROJ_FC_NE12, 1}, {PROJ_FC_R2, 1}, {PROJ_FC_R3, 1}};
    const mo_pipeline *pipeline;
    mo_status status =
        mo_find_pipeline(mo_encoder_device(encoder), p->kernel, constants, 3, &pipeline);
    if (status == MO_OK)
        status = mo_encoder_set_pipeline(encoder, pipeline);
    size_t index = 0;
    for (size_t i = 0; i < p->n_weights && status == MO_OK; i++)
        status =
            mo_encoder_set_buffer(encoder, p->weights[i]->buffer, p->weights[i]->offset, index++);
    if (status == MO_OK)
        status = mo_encoder_set_buffer(encoder, p->x->buffer, p->x->offset, index++);
    for (size_t i = 0; i < p->n_weights && status == MO_OK; i++)
        status =
            mo_encoder_set_buffer(encoder, p->results[i]->buffer, p->results[i]->offset, index++);
    if (status == MO_OK)
        status = mo_encoder_set_bytes(encoder, &params, sizeof params, index);
    if (status == MO_OK) {
        const uint64_t row_groups = ((uint64_t)N + ROWS_PER_THREADGROUP - 1) / ROWS_PER_THREADGROUP;
        status = mo_encoder_dispatch_threadgroups(encoder, (mo_size){row_groups, (uint64_t)m, 1},
                                                  (mo_size){8, 8, 1});
    }
    return status;
}

mo_status mo_encode_projection(mo_encoder *encoder, const mo_projection *p) {
    size_t weight_size;
    int64_t m;
    mo_status status = check_weights(p, &weight_size);
    if (status == MO_OK)
        status = check_x(p, &m);
    if (status == MO_OK)
        status = check_results(p, weight_size);
    if (status != MO_OK)
        return status;

    mo_buffer *const given[2] = {p->results[0]->buffer, p->results[p->n_weights - 1]->buffer};
    const int64_t last[2] = {p->weights[0]->N, p->weights[0]->N};
    status = mo_make_results(p->results, last, p->n_weights, m);
    if (status == MO_OK)
        status = record(encoder, p, m);
    if (status != MO_OK)
        mo_discard_results(p->results, given, p->n_weights);
    return status;
}
