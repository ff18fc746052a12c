// qkv_split_f32: a fused [seq, q | k | v] tensor into three contiguous ones, in one dispatch.

#include "cpu/kernels.h"
#include "encoder.h"
#include "ops/operand.h"
#include "status.h"
#include "../shaders/kernel_params.h"

#define THREADS_PER_THREADGROUP 256

// Channels (a float each) moved by one command buffer: some tenths of a second on the slowest GPU
// that is supported.
#ifndef QKV_SPLIT_WORK
#define QKV_SPLIT_WORK 0x1p31
#endif

#define KERNEL(suffix)                                                                             \
    {                                                                                              \
        .name = "qkv_split_f32" suffix, .shader = "qkv_split", .native = mo_cpu_qkv_split,         \
        .n_arguments = 5, .arguments = {                                                           \
            {.kind = MO_ARGUMENT_INPUT},                                                           \
            {.kind = MO_ARGUMENT_OUTPUT},                                                          \
            {.kind = MO_ARGUMENT_OUTPUT},                                                          \
            {.kind = MO_ARGUMENT_OUTPUT},                                                          \
            {.kind = MO_ARGUMENT_BYTES, .bytes = sizeof(qkv_split_params)}                         \
        }                                                                                          \
    }

// Arguments: qkv, q, k, v, params.
static const mo_kernel narrow = KERNEL(""), wide = KERNEL("x4");

MO_REGISTER_KERNEL(narrow)
MO_REGISTER_KERNEL(wide)

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

// Whether all spans and all addresses are multiples of what the wide kernel moves at once.
static bool can_be_wide(const mo_array *qkv, const int64_t spans[3], mo_result *const results[3]) {
    const size_t width = QKV_SPLIT_WIDE * sizeof(float);
    bool wide_enough = mo_is_aligned(qkv->buffer, qkv->offset, width);
    for (int i = 0; i < 3; i++)
        wide_enough &= spans[i] % QKV_SPLIT_WIDE == 0 &&
                       mo_is_aligned(results[i]->buffer, results[i]->offset, width);
    return wide_enough;
}

// Rows row_0 to row_0 + seq.
static mo_status record_rows(mo_encoder *encoder, const mo_array *qkv, const int64_t spans[3],
                             mo_result *const results[3], int64_t row_0, int64_t seq) {
    const qkv_split_params params = {.seq = (uint32_t)seq,
                                     .q_sp = (uint32_t)spans[0],
                                     .k_sp = (uint32_t)spans[1],
                                     .v_sp = (uint32_t)spans[2],
                                     .qkv_ch = (uint32_t)(spans[0] + spans[1] + spans[2])};
    const bool is_wide = can_be_wide(qkv, spans, results);
    const mo_pipeline *pipeline;
    mo_status status = mo_find_pipeline(mo_encoder_device(encoder),
                                        is_wide ? wide.name : narrow.name, NULL, 0, &pipeline);
    if (status == MO_OK)
        status = mo_encoder_set_pipeline(encoder, pipeline);
    const size_t row = params.qkv_ch * sizeof(float);
    if (status == MO_OK)
        status = mo_encoder_set_buffer(encoder, qkv->buffer, qkv->offset + (size_t)row_0 * row,
                                       (size_t)seq * row, 0);
    for (size_t i = 0; i < 3 && status == MO_OK; i++) {
        const size_t result_row = (size_t)spans[i] * sizeof(float);
        status = mo_encoder_set_buffer(encoder, results[i]->buffer,
                                       results[i]->offset + (size_t)row_0 * result_row,
                                       (size_t)seq * result_row, i + 1);
    }
    if (status == MO_OK)
        status = mo_encoder_set_bytes(encoder, &params, sizeof params, 4);
    if (status != MO_OK)
        return status;
    const uint64_t width = params.qkv_ch / (is_wide ? QKV_SPLIT_WIDE : 1);
    return mo_encoder_dispatch_threads(
        encoder, (mo_size){width, params.seq, 1},
        (mo_size){width < THREADS_PER_THREADGROUP ? width : THREADS_PER_THREADGROUP, 1, 1});
}

static mo_status record(mo_encoder *encoder, const mo_array *qkv, const int64_t spans[3],
                        mo_result *const results[3], int64_t seq) {
    const double row_work = (double)(spans[0] + spans[1] + spans[2]);
    const int64_t limit = mo_rows_per_command_buffer(QKV_SPLIT_WORK, row_work);
    mo_status status = MO_OK;
    for (int64_t row_0 = 0; row_0 < seq && status == MO_OK; row_0 += limit) {
        const int64_t rows = seq - row_0 < limit ? seq - row_0 : limit;
        mo_encoder_reserve(encoder, (double)rows * row_work / QKV_SPLIT_WORK);
        status = record_rows(encoder, qkv, spans, results, row_0, rows);
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
    const size_t mark = mo_encoder_mark(encoder);
    status = mo_make_results(results, spans, 3, seq);
    if (status == MO_OK)
        status = record(encoder, qkv, spans, results, seq);
    if (status != MO_OK) {
        mo_encoder_rewind(encoder, mark);
        mo_discard_results(results, given, 3);
    }
    return status;
}
