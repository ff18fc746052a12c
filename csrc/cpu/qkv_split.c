// The QKV split: one copy for each span of each row.

#include "cpu/kernels.h"
#include "cpu/threads.h"
#include "../shaders/kernel_params.h"

#include <stdbool.h>
#include <string.h>

#ifdef __x86_64__
#include <emmintrin.h>
#endif

// Results that together have at least so many channels, 16 MiB, are streamed: with qkv they are as
// much as a usual last-level cache holds, or more, and nobody would find them there.
#define STREAMED_CHANNELS ((size_t)1 << 22)

// Shorter spans are not streamed: too many of them begin and end within a cache line.
#define STREAMED_SPAN 64

// Narrow rows are taken together while they have so many channels: one span of all, then the next.
#define CHANNELS_TOGETHER 2048

// Channels that a core moves in a nanosecond.
#define CHANNELS_PER_STEP 8

typedef struct split {
    const uint32_t *qkv;
    uint32_t *results[3];
    size_t spans[3];
    bool streamed;
} split;

static void copy(uint32_t *to, const uint32_t *from, size_t n) {
    if (n > 16)
        memcpy(to, from, n * sizeof *to);
    else // quicker than the call
        for (size_t i = 0; i < n; i++)
            to[i] = from[i];
}

// A copy that goes around the caches: an ordinary store first reads the line that it overwrites.
static void stream(uint32_t *to, const uint32_t *from, size_t n) {
#ifdef __x86_64__
    size_t i = -(uintptr_t)to % sizeof(__m128i) / sizeof *to;
    copy(to, from, i);
    for (; i + 4 <= n; i += 4)
        _mm_stream_si128((__m128i *)(to + i), _mm_loadu_si128((const __m128i *)(from + i)));
    copy(to + i, from + i, n - i);
#else
    copy(to, from, n);
#endif
}

static void end_streams(void) {
#ifdef __x86_64__
    _mm_sfence(); // whoever waits for this thread sees what it wrote
#endif
}

// One span, from a channel of row `begin` on, of all rows up to `end`.
static void split_span(const split *s, int i, const uint32_t *from, size_t begin, size_t end) {
    const size_t n = s->spans[i], qkv_ch = s->spans[0] + s->spans[1] + s->spans[2];
    uint32_t *to = s->results[i] + begin * n;
    const bool streamed = s->streamed && n >= STREAMED_SPAN;
    for (size_t row = begin; row < end; row++, from += qkv_ch, to += n)
        if (streamed)
            stream(to, from, n);
        else
            copy(to, from, n);
}

static void split_rows(void *context, size_t begin, size_t end) {
    const split *s = context;
    const size_t qkv_ch = s->spans[0] + s->spans[1] + s->spans[2];
    const size_t together = CHANNELS_TOGETHER / qkv_ch + 1;
    for (size_t next; begin < end; begin = next) {
        next = end - begin < together ? end : begin + together;
        const uint32_t *from = s->qkv + begin * qkv_ch;
        for (int i = 0; i < 3; from += s->spans[i++])
            split_span(s, i, from, begin, next);
    }
    end_streams();
}

mo_status mo_cpu_qkv_split(const mo_dispatch *dispatch) {
    const qkv_split_params *params = mo_dispatch_bytes(dispatch, 4);
    split s = {.qkv = mo_dispatch_buffer(dispatch, 0),
               .results = {mo_dispatch_buffer(dispatch, 1), mo_dispatch_buffer(dispatch, 2),
                           mo_dispatch_buffer(dispatch, 3)},
               .spans = {params->q_sp, params->k_sp, params->v_sp},
               .streamed = (size_t)params->seq * params->qkv_ch >= STREAMED_CHANNELS};
    return mo_parallel_for(split_rows, &s, params->seq, params->qkv_ch / CHANNELS_PER_STEP);
}
