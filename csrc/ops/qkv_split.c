// qkv_split_f32: a fused [seq, q | k | v] tensor into three contiguous ones, in one dispatch.

#include "cpu/kernels.h"
#include "encoder.h"
#include "ops/operand.h"
#include "status.h"
#include "../shaders/kernel_params.h"

#define THREADS_PER_THREADGROUP 256

static const mo_kernel qkv_split = {
    .name = "qkv_split_f32",
    .shader = "qkv_split",
    .native = mo_cpu_qkv_split,
    .n_arguments = 5,
    .arguments =
        {
            {.kind = MO_ARGUMENT_BUFFER}, // qkv
            {.kind = MO_ARGUMENT_BUFFER}, // q
            {.kind = MO_ARGUMENT_BUFFER}, // k
            {.kind = MO_ARGUMENT_BUFFER}, // v
            {.kind = MO_ARGUMENT_BYTES, .bytes = sizeof(qkv_split_params)},
        },
};

MO_REGISTER_KERNEL(qkv_split)

static const char *const result_names[3] = {"out[0] (q)", "out[1] (k)", "out[2] (v)"};

static mo_status check_spans(const mo_array *qkv, const int64_t spans[3]) {
    static const char *const names[3] = {"q_sp", "k_sp", "v_sp"};
    int64_t sum = 0;
    for (int i = 0; i < 3; i++) {
        if (spans[i] < 1)
            return mo_fail(MO_INVALID_VALUE, "%s is %lld; it must be positive", names[i],
                           (long long)spans[i]);
        if (__builtin_add_overflow(sum, spans[i], &sum) || sum > MO_MAX_SIZE)
            return mo_fail(MO_INVALID_VALUE,
                           "q_sp + k_sp + v_sp = %lld + %lld + %lld; it is at "
                           "most 2^31 - 1",
                           (long long)spans[0], (long long)spans[1], (long long)spans[2]);
    }
    char text[128];
    if (qkv->shape[qkv->ndim - 1] != sum)
        return mo_fail(MO_INVALID_VALUE,
                       "qkv has shape %s; its last dimension must be q_sp + k_sp "
                       "+ v_sp = %lld + %lld + %lld = %lld",
                       mo_shape_text(qkv->ndim, qkv->shape, text, sizeof text), (long long)spans[0],
                       (long long)spans[1], (long long)spans[2], (long long)sum);
    return MO_OK;
}

static mo_status check_results(const mo_array *qkv, const int64_t spans[3],
                               mo_result *const results[3]) {
    mo_extent extents[3];
    for (int i = 0; i < 3; i++) {
        const mo_status status = mo_check_result(result_names[i], results[i], qkv, spans[i]);
        if (status != MO_OK)
            return status;
        extents[i] = mo_extent_of_array(result_names[i], results[i]);
    }
    const mo_extent operand = mo_extent_of_array("qkv", qkv);
    return mo_check_overlap(extents, 3, &operand, 1);
}

static mo_status record(mo_encoder *encoder, const mo_array *qkv, const qkv_split_params *params,
                        mo_result *const results[3]) {
    const mo_pipeline *pipeline;
    mo_status status =
        mo_find_pipeline(mo_encoder_device(encoder), qkv_split.name, NULL, 0, &pipeline);
    if (status == MO_OK)
        status = mo_encoder_set_pipeline(encoder, pipeline);
    if (status == MO_OK)
        status = mo_encoder_set_buffer(encoder, qkv->buffer, qkv->offset, 0);
    for (size_t i = 0; i < 3 && status == MO_OK; i++)
        status = mo_encoder_set_buffer(encoder, results[i]->buffer, results[i]->offset, i + 1);
    if (status == MO_OK)
        status = mo_encoder_set_bytes(encoder, params, sizeof *params, 4);
    if (status == MO_OK) {
        const uint32_t width =
            params->qkv_ch < THREADS_PER_THREADGROUP ? params->qkv_ch : THREADS_PER_THREADGROUP;
        status = mo_encoder_dispatch_threads(encoder, (mo_size){params->qkv_ch, params->seq, 1},
                                             (mo_size){width, 1, 1});
    }
    return status;
}

mo_status mo_qkv_split_f32(mo_encoder *encoder, const mo_array *qkv, int64_t q_sp, int64_t k_sp,
                           int64_t v_sp, mo_result *q, mo_result *k, mo_result *v) {
    const int64_t spans[3] = {q_sp, k_sp, v_sp};
    mo_result *const results[3] = {q, k, v};
    int64_t seq;
    mo_status status = mo_count_rows("qkv", qkv, "seq", &seq);
    if (status == MO_OK)
        status = check_spans(qkv, spans);
    if (status == MO_OK)
        status = mo_check_array_size("qkv", qkv);
    if (status == MO_OK)
        status = check_results(qkv, spans, results);
    if (status != MO_OK)
        return status;

    mo_buffer *const given[3] = {q->buffer, k->buffer, v->buffer};
    const qkv_split_params params = {.seq = (uint32_t)seq,
                                     .q_sp = (uint32_t)q_sp,
                                     .k_sp = (uint32_t)k_sp,
                                     .v_sp = (uint32_t)v_sp,
                                     .qkv_ch = (uint32_t)(q_sp + k_sp + v_sp)};
    status = mo_make_results(results, spans, 3, seq);
    if (status == MO_OK)
        status = record(encoder, qkv, &params, results);
    if (status != MO_OK)
        mo_discard_results(results, given, 3);
    return status;
}
