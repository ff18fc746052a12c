// The QKV split: one copy for each span of each row.

#include "cpu/kernels.h"
#include "cpu/threads.h"
#include "../shaders/kernel_params.h"

#include <string.h>

typedef struct split {
    const uint32_t *qkv;
    uint32_t *results[3];
    size_t spans[3];
} split;

static void split_rows(void *context, size_t begin, size_t end) {
    const split *s = context;
    const size_t qkv_ch = s->spans[0] + s->spans[1] + s->spans[2];
    for (size_t row = begin; row < end; row++) {
        const uint32_t *source = s->qkv + row * qkv_ch;
        for (int i = 0; i < 3; i++) {
            memcpy(s->results[i] + row * s->spans[i], source, s->spans[i] * sizeof *source);
            source += s->spans[i];
        }
    }
}

mo_status mo_cpu_qkv_split(const mo_dispatch *dispatch) {
    const qkv_split_params *params = mo_dispatch_bytes(dispatch, 4);
    const split s = {.qkv = mo_dispatch_buffer(dispatch, 0),
                     .results = {mo_dispatch_buffer(dispatch, 1), mo_dispatch_buffer(dispatch, 2),
                                 mo_dispatch_buffer(dispatch, 3)},
                     .spans = {params->q_sp, params->k_sp, params->v_sp}};
    // A core copies a few elements in a nanosecond.
    return mo_parallel_for(split_rows, (void *)&s, params->seq, params->qkv_ch / 4);
}
