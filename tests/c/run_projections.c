// Runs the projections that the standard input describes and writes the bits of their results to
// the standard output. A projection is five int64: the number of weights (2: the fused dual
// projection), N, K, m and the number of threads; then the blocks of each weight, and x.
//
// The standard error tells the CPU device, whose description ends with the instruction set in use,
// and what is wrong with the environment variables.

#include "mlxops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void require(bool condition, const char *what) {
    if (condition)
        return;
    fprintf(stderr, "%s; last message: %s\n", what, mo_status_message());
    exit(1);
}

// Of tests/reference/float_environment.c.
int set_rounding(int direction);
int get_rounding(void);
void set_flush_to_zero(int on);
int get_flush_to_zero(void);

#define UPWARD 1

// Memory that ends where a page begins that must not be touched.
typedef struct guarded {
    void *pages;
    size_t mapped;
    mo_buffer *buffer;
} guarded;

static void *contents(const guarded *memory) {
    return mo_buffer_contents(memory->buffer);
}

static guarded allocate(size_t size) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t usable = (size + page - 1) / page * page;
    guarded memory = {.mapped = usable + page};
    memory.pages =
        mmap(NULL, memory.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(memory.pages != MAP_FAILED, "mmap failed");
    char *end = (char *)memory.pages + usable;
    memset(end - size, 0xa5, size); // what is never written is seen
    require(mprotect(end, page, PROT_NONE) == 0, "mprotect failed");
    require(mo_buffer_borrow(end - size, size, &memory.buffer) == MO_OK, "no buffer");
    return memory;
}

static void release(guarded *memory) {
    mo_buffer_release(memory->buffer);
    munmap(memory->pages, memory->mapped);
}

static guarded read_operand(size_t size) {
    const guarded memory = allocate(size);
    require(fread(contents(&memory), 1, size, stdin) == size, "the input ends early");
    return memory;
}

// As a caller whose floating point is set to something else, which must not matter and must stay.
static mo_status commit(mo_encoder *encoder) {
    set_rounding(UPWARD);
    set_flush_to_zero(1);
    const mo_status status = mo_encoder_commit(encoder);
    require(get_rounding() == UPWARD && get_flush_to_zero(), "the environment has changed");
    set_rounding(0);
    set_flush_to_zero(0);
    return status;
}

static void project(const mo_q4_0_matrix *weights, bool dual, const mo_array *x,
                    mo_result *results) {
    mo_encoder *encoder;
    require(mo_encoder_begin(mo_default_device(), &encoder) == MO_OK, "no encoder");
    const mo_status status = dual ? mo_fused_dual_proj_q4_0(encoder, &weights[0], &weights[1], x,
                                                            &results[0], &results[1])
                                  : mo_mul_mv_q4_0(encoder, &weights[0], x, &results[0]);
    require(status == MO_OK, "refused");
    require(commit(encoder) == MO_OK, "the commit failed");
    require(mo_encoder_wait(encoder) == MO_OK, "the wait failed");
    mo_encoder_free(encoder);
}

static void run_projection(int n_weights, int64_t N, int64_t K, int64_t m) {
    const int64_t x_shape[] = {m, K}, shape[] = {m, N};
    const size_t result_bytes = (size_t)(m * N) * sizeof(float);
    size_t weight_bytes;
    guarded blocks[2], outputs[2];
    mo_q4_0_matrix weights[2];
    mo_result results[2];
    require(mo_q4_0_size(N, K, &weight_bytes) == MO_OK, "no such weight");
    for (int w = 0; w < n_weights; w++) {
        blocks[w] = read_operand(weight_bytes);
        outputs[w] = allocate(result_bytes);
        weights[w] = (mo_q4_0_matrix){blocks[w].buffer, 0, N, K};
        results[w] = (mo_result){outputs[w].buffer, 0, 2, shape};
    }
    guarded inputs = read_operand((size_t)(m * K) * sizeof(float));
    const mo_array x = {inputs.buffer, 0, 2, x_shape};
    project(weights, n_weights == 2, &x, results);
    for (int w = 0; w < n_weights; w++) {
        fwrite(contents(&outputs[w]), 1, result_bytes, stdout);
        release(&outputs[w]);
        release(&blocks[w]);
    }
    release(&inputs);
}

int main(void) {
    char text[512];
    mo_device_describe(mo_default_device(), text, sizeof text);
    fprintf(stderr, "%s\n", text);
    if (mo_check_environment() != MO_OK)
        fprintf(stderr, "%s\n", mo_status_message());
    int64_t header[5];
    while (fread(header, sizeof header, 1, stdin) == 1) {
        require(header[0] == 1 || header[0] == 2, "one weight or two");
        require(mo_set_num_threads(header[4]) == MO_OK, "no threads");
        run_projection((int)header[0], header[1], header[2], header[3]);
    }
    return fflush(stdout) == 0 ? 0 : 1;
}
