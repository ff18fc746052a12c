// The projections on the CPU: what is the same for every instruction set.
//
// x is arranged once for all rows of the weights: in panels of up to MO_MAX_INPUTS rows of x, and
// within a panel for the registers of the kernel. Then threads share the rows of the weights.

#include "cpu/isa.h"
#include "cpu/kernels.h"
#include "cpu/threads.h"
#include "../shaders/kernel_params.h"

#include <string.h>

// x is taken in parts that, arranged, are so many floats, half a second-level cache, where all rows
// of the weights meet them; or so many panels, as the weights are read again for each part.
#define PART_FLOATS ((size_t)1 << 17)
#define PART_PANELS 4

typedef struct projection {
    const unsigned char *weights[2];
    size_t n_weights;
    const float *x; // arranged
    float *results[2];
    int64_t N, K, m;
    int64_t panels;
    size_t input_size; // floats of one arranged row of x
    const mo_isa *isa;
} projection;

// Where part i begins if n rows of x are divided into parts that differ by one at most: none of
// them pays for a pass of its own over the weights.
static int64_t begin_of(int64_t i, int64_t parts, int64_t n) {
    const int64_t more = n % parts;
    return n / parts * i + (i < more ? i : more);
}

static int64_t first_input(const projection *p, int64_t panel) {
    return begin_of(panel, p->panels, p->m);
}

// One row of x for the first of n_inputs places: [group][step][input][lane]. Lane 2 p + h meets
// half h of block p of the group, in the order of the steps; beyond the row's end it meets zeros.
static void arrange_input(const float *x, int64_t K, int lanes, int n_inputs, float *arranged) {
    const int64_t blocks = K / 32, group_blocks = lanes / 2;
    const int step = n_inputs * lanes;
    for (int64_t b = 0; b < blocks; b++, x += 32) {
        float *group = arranged + b / group_blocks * 16 * step + b % group_blocks * 2;
        for (int j = 0; j < 8; j++, group += 2 * step) {
            const float low[2] = {x[j], x[j + 8]}, high[2] = {x[j + 16], x[j + 24]};
            memcpy(group, low, sizeof low);
            memcpy(group + step, high, sizeof high);
        }
    }
    const int64_t beyond = (group_blocks - blocks % group_blocks) % group_blocks * 2;
    float *last = arranged + (blocks / group_blocks) * 16 * step + lanes - beyond;
    for (int s = 0; s < 16 && beyond > 0; s++)
        memset(last + s * step, 0, (size_t)beyond * sizeof *last);
}

static void arrange(const projection *p, const float *x, float *arranged) {
    const int lanes = p->isa->lanes;
    for (int64_t panel = 0; panel < p->panels; panel++) {
        const int64_t first = first_input(p, panel), end = first_input(p, panel + 1);
        for (int64_t i = first; i < end; i++)
            arrange_input(x + i * p->K, p->K, lanes, (int)(end - first),
                          arranged + (size_t)first * p->input_size + (i - first) * lanes);
    }
}

// n rows of one weight from row n_0 on; those that meet one panel of x after the other stay in the
// cache.
static void project_part(const projection *p, size_t weight, int64_t n_0, int64_t n) {
    const size_t row_bytes = (size_t)(p->K / 32) * MO_Q4_0_BLOCK_BYTES;
    for (int64_t end = n_0 + n; n_0 < end; n_0 += MO_MAX_ROWS) {
        const int64_t rows = end - n_0 < MO_MAX_ROWS ? end - n_0 : MO_MAX_ROWS;
        for (int64_t panel = 0; panel < p->panels; panel++) {
            const int64_t i = first_input(p, panel);
            p->isa->project(p->weights[weight] + (size_t)n_0 * row_bytes, rows, p->K,
                            p->x + (size_t)i * p->input_size, (int)(first_input(p, panel + 1) - i),
                            p->results[weight] + i * p->N + n_0, p->N);
        }
    }
}

// Rows begin to end of all weights, one weight after the other.
static void project_rows(void *context, size_t begin, size_t end) {
    const projection *p = context;
    const size_t N = (size_t)p->N;
    for (size_t w = 0; w < p->n_weights; w++) {
        const size_t from = begin > w * N ? begin : w * N;
        const size_t to = end < (w + 1) * N ? end : (w + 1) * N;
        if (from < to)
            project_part(p, w, (int64_t)(from - w * N), (int64_t)(to - from));
    }
}

// Inputs from `first` to `end`.
static mo_status project_inputs(const projection *whole, int64_t first, int64_t end,
                                float *scratch) {
    projection p = *whole;
    p.m = end - first;
    p.panels = (p.m - 1) / MO_MAX_INPUTS + 1;
    p.x = whole->x + first * p.K;
    for (size_t w = 0; w < p.n_weights; w++)
        p.results[w] += first * p.N;
    if (p.isa->lanes > 0) {
        arrange(&p, p.x, scratch);
        p.x = scratch;
    }
    const double cost = (double)p.K * (double)p.m / p.isa->speed;
    return mo_parallel_for(project_rows, &p, p.n_weights * (size_t)p.N, (size_t)cost + 1);
}

// The floats of one row of x, arranged: whole registers of lanes.
static size_t arranged_floats(int64_t K, int lanes) {
    const size_t group = (size_t)lanes * 16;
    return ((size_t)K + group - 1) / group * group;
}

static int64_t count_parts(const projection *p) {
    const int64_t fitting = (int64_t)(PART_FLOATS / p->input_size) / MO_MAX_INPUTS;
    const int64_t panels = fitting > PART_PANELS ? fitting : PART_PANELS;
    return (p->m - 1) / (panels * MO_MAX_INPUTS) + 1;
}

static mo_status project(projection *p, const proj_q4_0_params *params) {
    p->isa = mo_chosen_isa();
    p->N = params->ne01, p->K = params->ne00, p->m = params->ne1;
    p->input_size = p->isa->lanes > 0 ? arranged_floats(p->K, p->isa->lanes) : (size_t)p->K;
    const int64_t parts = count_parts(p);
    const size_t longest = (size_t)begin_of(1, parts, p->m);
    mo_buffer *scratch = NULL;
    mo_status status = MO_OK;
    if (p->isa->lanes > 0)
        status = mo_buffer_alloc(longest * p->input_size * sizeof(float), &scratch);
    for (int64_t i = 0; i < parts && status == MO_OK; i++)
        status = project_inputs(p, begin_of(i, parts, p->m), begin_of(i + 1, parts, p->m),
                                scratch ? mo_buffer_contents(scratch) : NULL);
    mo_buffer_release(scratch);
    return status;
}

mo_status mo_cpu_mul_mv_q4_0(const mo_dispatch *dispatch) {
    projection p = {.weights = {mo_dispatch_buffer(dispatch, 0)},
                    .n_weights = 1,
                    .x = mo_dispatch_buffer(dispatch, 1),
                    .results = {mo_dispatch_buffer(dispatch, 2)}};
    return project(&p, mo_dispatch_bytes(dispatch, 3));
}

mo_status mo_cpu_fused_dual_proj_q4_0(const mo_dispatch *dispatch) {
    projection p = {.weights = {mo_dispatch_buffer(dispatch, 0), mo_dispatch_buffer(dispatch, 1)},
                    .n_weights = 2,
                    .x = mo_dispatch_buffer(dispatch, 2),
                    .results = {mo_dispatch_buffer(dispatch, 3), mo_dispatch_buffer(dispatch, 4)}};
    return project(&p, mo_dispatch_bytes(dispatch, 5));
}
