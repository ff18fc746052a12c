// What the single and the dual projection have in common: the checks, the choice of the kernel, the
// cut into command buffers.

#include "ops/proj_q4_0.h"
#include "ops/operand.h"
#include "status.h"

// Multiply-adds in one command buffer: some tenths of a second on the slowest GPU that is
// supported.
#ifndef PROJECTION_WORK
#define PROJECTION_WORK 0x1p35
#endif

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
    if (!mo_is_aligned(weight->buffer, weight->offset, 2)) // the half of a block
        return mo_fail(MO_INVALID_VALUE, "%s does not begin at a multiple of 2 bytes", name);
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

// Whether the kernel of a variant takes these operands.
static bool takes_operands(const mo_projection_variant *variant, const mo_projection *p) {
    bool takes = p->weights[0]->K % variant->K_divisor == 0 &&
                 mo_is_aligned(p->x->buffer, p->x->offset, variant->x_alignment);
    for (size_t i = 0; i < p->n_weights; i++)
        takes &=
            mo_is_aligned(p->weights[i]->buffer, p->weights[i]->offset, variant->weight_alignment);
    return takes;
}

// The variant for m rows of x.
static mo_status choose_variant(const char *device, const mo_projection *p, int64_t m,
                                size_t *index) {
    const bool is_forced = mo_projection_forced_variant(index);
    if (!is_forced)
        *index = mo_projection_choice(device, m, (int64_t)p->n_weights * p->weights[0]->N);
    const mo_projection_variant *variant = mo_projection_variant_at(*index);
    if (takes_operands(variant, p))
        return MO_OK;
    if (is_forced)
        return mo_fail(MO_INVALID_VALUE,
                       "the forced variant %s needs a K that is a multiple of %lld, x at a "
                       "multiple of %zu bytes and weights at multiples of %zu",
                       variant->name, (long long)variant->K_divisor, variant->x_alignment,
                       variant->weight_alignment);
    *index = mo_projection_plain_choice(m);
    return MO_OK;
}

// Rows row_0 to row_0 + m of x and of the results.
static mo_status bind(mo_encoder *encoder, const mo_projection *p, int64_t row_0, int64_t m) {
    const int64_t N = p->weights[0]->N, K = p->weights[0]->K;
    const size_t x_row = (size_t)K * sizeof(float), result_row = (size_t)N * sizeof(float);
    const proj_q4_0_params params = {.ne00 = K,
                                     .ne01 = N,
                                     .ne02 = 1,
                                     .ne10 = K,
                                     .ne12 = 1,
                                     .ne0 = N,
                                     .ne1 = m,
                                     .r2 = 1,
                                     .r3 = 1};
    size_t index = 0, weight_size;
    mo_status status = mo_q4_0_size(N, K, &weight_size);
    for (size_t i = 0; i < p->n_weights && status == MO_OK; i++)
        status = mo_encoder_set_buffer(encoder, p->weights[i]->buffer, p->weights[i]->offset,
                                       weight_size, index++);
    if (status == MO_OK)
        status = mo_encoder_set_buffer(encoder, p->x->buffer, p->x->offset + (size_t)row_0 * x_row,
                                       (size_t)m * x_row, index++);
    for (size_t i = 0; i < p->n_weights && status == MO_OK; i++)
        status = mo_encoder_set_buffer(encoder, p->results[i]->buffer,
                                       p->results[i]->offset + (size_t)row_0 * result_row,
                                       (size_t)m * result_row, index++);
    if (status == MO_OK)
        status = mo_encoder_set_bytes(encoder, &params, sizeof params, index);
    return status;
}

static mo_status record_rows(mo_encoder *encoder, const mo_projection *p, int64_t row_0,
                             int64_t m) {
    const mo_function_constant constants[] = {{PROJ_FC_NE12, 1}, {PROJ_FC_R2, 1}, {PROJ_FC_R3, 1}};
    mo_device *device = mo_encoder_device(encoder);
    const mo_pipeline *pipeline;
    size_t index;
    mo_status status = choose_variant(mo_device_name(device), p, m, &index);
    if (status == MO_OK)
        status = mo_find_pipeline(device, p->kernels[index].name, constants, 3, &pipeline);
    if (status == MO_OK)
        status = mo_encoder_set_pipeline(encoder, pipeline);
    if (status == MO_OK)
        status = bind(encoder, p, row_0, m);
    if (status != MO_OK)
        return status;
    const mo_projection_variant *variant = mo_projection_variant_at(index);
    const uint64_t row_groups = mo_ceil_div(p->weights[0]->N, variant->rows[p->n_weights - 1]);
    const uint64_t input_groups = mo_ceil_div(m, variant->inputs);
    return mo_encoder_dispatch_threadgroups(encoder, (mo_size){row_groups, input_groups, 1},
                                            variant->threads);
}

static mo_status record(mo_encoder *encoder, const mo_projection *p, int64_t m) {
    const double row_work =
        (double)p->n_weights * (double)p->weights[0]->N * (double)p->weights[0]->K;
    const int64_t limit = mo_rows_per_command_buffer(PROJECTION_WORK, row_work);
    mo_status status = MO_OK;
    for (int64_t row_0 = 0; row_0 < m && status == MO_OK; row_0 += limit) {
        const int64_t rows = m - row_0 < limit ? m - row_0 : limit;
        mo_encoder_reserve(encoder, (double)rows * row_work / PROJECTION_WORK);
        status = record_rows(encoder, p, row_0, rows);
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
    const size_t mark = mo_encoder_mark(encoder);
    status = mo_make_results(p->results, last, p->n_weights, m);
    if (status == MO_OK)
        status = record(encoder, p, m);
    if (status != MO_OK) {
        mo_encoder_rewind(encoder, mark);
        mo_discard_results(p->results, given, p->n_weights);
    }
    return status;
}
