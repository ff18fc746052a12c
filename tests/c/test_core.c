// The C core used as a C program uses it, without Python. Prints what failed; exit status 1 then.

#include "buffer.h"
#include "cpu/interrupt.h"
#include "cpu/threads.h"
#include "device.h"
#include "encoder.h"
#include "mlxops.h"
#include "registry.h"
#include "status.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int failures;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("%s:%d: %s is false; last message: %s\n", __FILE__, __LINE__, #condition,       \
                   mo_status_message());                                                           \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

#define CHECK_FAILS(call, status, text)                                                            \
    do {                                                                                           \
        CHECK((call) == (status));                                                                 \
        CHECK(strstr(mo_status_message(), (text)));                                                \
    } while (0)

// ---- A kernel of our own: adds a constant to a few floats --------------------------------------

typedef struct add_params {
    uint32_t n;
    float value;
} add_params;

static mo_size last_grid, last_threads;
static bool last_by_threadgroups;

static mo_status add_native(const mo_dispatch *dispatch) {
    const float *in = mo_dispatch_buffer(dispatch, 0);
    float *out = mo_dispatch_buffer(dispatch, 1);
    const add_params *params = mo_dispatch_bytes(dispatch, 2);
    for (uint32_t i = 0; i < params->n; i++)
        out[i] = in[i] + params->value;
    last_grid = dispatch->grid;
    last_threads = dispatch->threads_per_threadgroup;
    last_by_threadgroups = dispatch->by_threadgroups;
    return MO_OK;
}

#define ADD_ARGUMENTS                                                                              \
    .n_arguments = 3, .arguments = {{.kind = MO_ARGUMENT_INPUT},                                   \
                                    {.kind = MO_ARGUMENT_OUTPUT},                                  \
                                    {.kind = MO_ARGUMENT_BYTES, .bytes = sizeof(add_params)}}

static const mo_kernel add = {.name = "test_add", .native = add_native, ADD_ARGUMENTS};
static const mo_kernel other_add = {.name = "test_add", .native = add_native, ADD_ARGUMENTS};
static const mo_kernel shader_only = {.name = "test_shader_only", ADD_ARGUMENTS};

static mo_status fail_native(const mo_dispatch *dispatch) {
    (void)dispatch;
    return mo_fail(MO_DEVICE_ERROR, "the kernel gave up");
}

static const mo_kernel failing = {.name = "test_failing", .native = fail_native};

static const mo_pipeline *pipeline_of(const char *name) {
    const mo_pipeline *pipeline = NULL;
    CHECK(mo_find_pipeline(mo_default_device(), name, NULL, 0, &pipeline) == MO_OK);
    return pipeline;
}

// ---- Registry ----------------------------------------------------------------------------------

static void test_registry(void) {
    const mo_kernel *found;
    CHECK(mo_register_kernel(&add) == MO_OK);
    CHECK(mo_register_kernel(&add) == MO_OK);
    CHECK_FAILS(mo_register_kernel(&other_add), MO_MISUSE, "test_add");
    CHECK(mo_find_kernel("test_add", &found) == MO_OK && found == &add);
    CHECK_FAILS(mo_find_kernel("no_such", &found), MO_INVALID_VALUE, "no_such");
    static const char *const kernels[] = {"kernel_mul_mv_q4_0_f32",
                                          "kernel_fused_dual_proj_q4_0_f32", "qkv_split_f32"};
    for (int i = 0; i < 3; i++) {
        CHECK(mo_find_kernel(kernels[i], &found) == MO_OK);
        const char *source = mo_shader_source(found->shader);
        CHECK(source && strstr(source, kernels[i]) && strstr(source, "[[buffer(0)]]"));
        CHECK(source && strstr(source, "params {") && !strstr(source, "#include \""));
    }
    CHECK(mo_shader_source("no_such") == NULL);
}

static void test_pipelines(void) {
    mo_device *cpu = mo_default_device();
    const mo_function_constant one = {700, 1}, two = {700, 2};
    const mo_pipeline *plain, *again, *with_one, *with_two;
    CHECK(mo_find_pipeline(cpu, "test_add", NULL, 0, &plain) == MO_OK);
    CHECK(mo_find_pipeline(cpu, "test_add", NULL, 0, &again) == MO_OK && again == plain);
    CHECK(mo_find_pipeline(cpu, "test_add", &one, 1, &with_one) == MO_OK && with_one != plain);
    CHECK(mo_find_pipeline(cpu, "test_add", &two, 1, &with_two) == MO_OK && with_two != with_one);
    CHECK(mo_find_pipeline(cpu, "test_add", &one, 1, &again) == MO_OK && again == with_one);
    CHECK_FAILS(mo_find_pipeline(cpu, "no_such", NULL, 0, &again), MO_INVALID_VALUE, "no_such");
    const mo_function_constant many[5] = {{0, 0}};
    CHECK_FAILS(mo_find_pipeline(cpu, "test_add", many, 5, &again), MO_INVALID_VALUE, "5");
    CHECK(mo_register_kernel(&shader_only) == MO_OK);
    CHECK_FAILS(mo_find_pipeline(cpu, "test_shader_only", NULL, 0, &again), MO_DEVICE_ERROR,
                "test_shader_only");
}

// A device that counts the pipelines it makes, each of which takes it a while.
static atomic_int pipelines_made;

static mo_status count_pipeline(const mo_kernel *kernel, const mo_function_constant *constants,
                                size_t n_constants, void **state) {
    (void)kernel, (void)constants, (void)n_constants;
    *state = NULL;
    struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    nanosleep(&pause, NULL);
    pipelines_made++;
    return MO_OK;
}

// It also counts the buffers that it has wrapped, and refuses those of 13 bytes.
static int wrapped, wraps;

static mo_status count_wrap(const mo_buffer *buffer, void **wrapper) {
    const size_t size = mo_buffer_size(buffer);
    *wrapper = NULL;
    if (size == 13)
        return mo_fail(MO_OUT_OF_MEMORY, "no 13");
    if (size == 14 || !mo_buffer_has_pages(buffer))
        return MO_OK;
    *wrapper = mo_buffer_contents(buffer);
    wrapped++;
    wraps++;
    return MO_OK;
}

static bool lets_go = true;

static bool count_unwrap(void *wrapper) {
    (void)wrapper;
    wrapped--;
    return lets_go;
}

// And what it is told to forget.
static int forgotten;

static void count_forget(void *wrapper) {
    (void)wrapper;
    forgotten++;
}

static mo_device counting_device = {.name = "counting",
                                    .make_pipeline = count_pipeline,
                                    .wrap = count_wrap,
                                    .unwrap = count_unwrap,
                                    .forget = count_forget};

static void *find_counting_pipeline(void *unused) {
    (void)unused;
    const mo_pipeline *pipeline;
    mo_find_pipeline(&counting_device, "test_add", NULL, 0, &pipeline);
    return (void *)pipeline;
}

static void test_pipeline_is_made_once(void) {
    pthread_t threads[8];
    void *pipelines[8];
    for (int i = 0; i < 8; i++)
        CHECK(pthread_create(&threads[i], NULL, find_counting_pipeline, NULL) == 0);
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], &pipelines[i]);
        CHECK(pipelines[i] == pipelines[0]);
    }
    CHECK(pipelines_made == 1);
}

// ---- Devices -----------------------------------------------------------------------------------

static void test_devices(void) {
    mo_device *device;
    char text[64], cut[4];
    CHECK(mo_device_count() >= 1);
    CHECK(mo_device_at(mo_device_count()) == NULL);
    CHECK(mo_device_find("cpu", &device) == MO_OK && strcmp(mo_device_name(device), "cpu") == 0);
    mo_device_describe(device, text, sizeof text);
    mo_device_describe(device, cut, sizeof cut);
    CHECK(strlen(text) > 0 && strlen(cut) < sizeof cut);
    CHECK_FAILS(mo_device_find("abacus", &device), MO_DEVICE_ERROR, "abacus");
    CHECK(strstr(mo_status_message(), "cpu"));
    CHECK(mo_default_device() == mo_device_at(0));
    mo_set_default_device(&counting_device);
    CHECK(mo_default_device() == &counting_device);
    mo_set_default_device(mo_device_at(0));
}

// ---- Buffers -----------------------------------------------------------------------------------

static void test_buffers(void) {
    mo_buffer *buffer, *other;
    mo_buffer_cache_clear();
    CHECK(mo_buffer_cache_size() == 0);
    static const size_t sizes[] = {0, 1, 16384, 16385, 131072, 131073, 1000003, (size_t)1 << 26};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        CHECK(mo_buffer_alloc(sizes[i], &buffer) == MO_OK);
        CHECK(mo_buffer_size(buffer) == sizes[i]);
        CHECK((uintptr_t)mo_buffer_contents(buffer) % 4096 == 0);
        memset(mo_buffer_contents(buffer), 1, sizes[i]);
        mo_buffer_release(buffer);
    }
    CHECK(mo_buffer_cache_size() >= (size_t)1 << 26);

    // The memory of a freed buffer serves the next one of about its size, and of a held one no
    // other.
    CHECK(mo_buffer_alloc(1000000, &buffer) == MO_OK);
    const void *contents = mo_buffer_contents(buffer);
    CHECK(mo_buffer_retain(buffer) == buffer);
    mo_buffer_release(buffer);
    CHECK(mo_buffer_alloc(1000001, &other) == MO_OK && mo_buffer_contents(other) != contents);
    mo_buffer_release(buffer);
    CHECK(mo_buffer_alloc(1000002, &buffer) == MO_OK && mo_buffer_contents(buffer) == contents);
    CHECK(mo_buffer_size(buffer) == 1000002);
    mo_buffer_release(buffer);
    mo_buffer_release(other);
    mo_buffer_release(NULL);
    mo_buffer_cache_clear();
    CHECK(mo_buffer_cache_size() == 0);

    CHECK_FAILS(mo_buffer_alloc(SIZE_MAX, &buffer), MO_OUT_OF_MEMORY, "18446744073709551615");
    CHECK_FAILS(mo_buffer_alloc((size_t)1 << 60, &buffer), MO_OUT_OF_MEMORY, "bytes");

    float memory[4] = {1, 2, 3, 4};
    CHECK(mo_buffer_borrow(memory, sizeof memory, &buffer) == MO_OK);
    CHECK(mo_buffer_contents(buffer) == memory && mo_buffer_size(buffer) == sizeof memory);
    mo_buffer_release(buffer);
    CHECK(mo_buffer_cache_size() == 0);
}

// A device's handle of a buffer is made once, stays with the memory, and goes with it.
static void test_wrappers(void) {
    mo_buffer *buffer;
    void *wrapper, *again;
    char memory[14];
    mo_buffer_cache_clear();
    CHECK(mo_buffer_alloc(100, &buffer) == MO_OK);
    CHECK(mo_buffer_has_pages(buffer));
    CHECK((uintptr_t)mo_buffer_contents(buffer) % MO_PAGE == 0);
    CHECK(mo_buffer_wrapper(buffer, &counting_device, &wrapper) == MO_OK && wrapper);
    CHECK(mo_buffer_wrapper(buffer, &counting_device, &again) == MO_OK && again == wrapper);
    mo_buffer_release(buffer);
    CHECK(wrapped == 1 && wraps == 1);
    CHECK(mo_buffer_alloc(200, &buffer) == MO_OK);
    CHECK(mo_buffer_wrapper(buffer, &counting_device, &again) == MO_OK && again == wrapper);
    CHECK(wraps == 1);
    mo_buffer_release(buffer);
    mo_buffer_cache_clear();
    CHECK(wrapped == 0);

    CHECK(mo_buffer_borrow(memory, 12, &buffer) == MO_OK && !mo_buffer_has_pages(buffer));
    CHECK(mo_buffer_wrapper(buffer, &counting_device, &wrapper) == MO_OK && !wrapper);
    mo_buffer_release(buffer);
    CHECK(mo_buffer_borrow_pages(memory, 12, &buffer) == MO_OK && mo_buffer_has_pages(buffer));
    CHECK(mo_buffer_wrapper(buffer, &counting_device, &wrapper) == MO_OK && wrapper == memory);
    mo_buffer_release(buffer);
    CHECK(wrapped == 0);
    CHECK(mo_buffer_borrow_pages(memory, 13, &buffer) == MO_OK);
    CHECK_FAILS(mo_buffer_wrapper(buffer, &counting_device, &wrapper), MO_OUT_OF_MEMORY, "13");
    mo_buffer_release(buffer);
    CHECK(mo_buffer_borrow_pages(memory, 14, &buffer) == MO_OK);
    CHECK(mo_buffer_wrapper(buffer, &counting_device, &wrapper) == MO_OK && !wrapper);
    mo_buffer_release(buffer);
    CHECK(wrapped == 0);
}

// The contents of a frozen buffer are forgotten when it is freed, while its memory stays wrapped.
static void test_frozen_buffers(void) {
    mo_buffer *buffer;
    void *wrapper;
    float memory[4];
    mo_buffer_cache_clear();
    CHECK(mo_buffer_alloc(100, &buffer) == MO_OK);
    CHECK(mo_buffer_is_own(buffer) && !mo_buffer_is_frozen(buffer));
    CHECK(mo_buffer_capacity(buffer) == MO_PAGE);
    CHECK(mo_buffer_wrapper(buffer, &counting_device, &wrapper) == MO_OK && wrapper);
    mo_buffer_freeze(buffer);
    CHECK(mo_buffer_is_frozen(buffer));
    mo_buffer_retain(buffer);
    mo_buffer_release(buffer);
    CHECK(forgotten == 0);
    mo_buffer_release(buffer);
    CHECK(forgotten == 1 && wrapped == 1);
    CHECK(mo_buffer_alloc(100, &buffer) == MO_OK && !mo_buffer_is_frozen(buffer));
    mo_buffer_release(buffer);
    CHECK(forgotten == 1);

    CHECK(mo_buffer_borrow_pages(memory, sizeof memory, &buffer) == MO_OK);
    CHECK(!mo_buffer_is_own(buffer) && mo_buffer_capacity(buffer) == sizeof memory);
    CHECK(mo_buffer_wrapper(buffer, &counting_device, &wrapper) == MO_OK && wrapper);
    mo_buffer_freeze(buffer);
    mo_buffer_release(buffer);
    CHECK(forgotten == 2);
    mo_buffer_cache_clear();
    CHECK(wrapped == 0);
}

// Memory that a device has not let go of is not unmapped.
static void test_memory_that_is_held(void) {
    mo_buffer *buffer;
    void *wrapper;
    CHECK(mo_buffer_alloc(100, &buffer) == MO_OK);
    CHECK(mo_buffer_wrapper(buffer, &counting_device, &wrapper) == MO_OK);
    char *contents = mo_buffer_contents(buffer);
    mo_buffer_release(buffer);
    lets_go = false;
    mo_buffer_cache_clear();
    lets_go = true;
    contents[MO_PAGE - 1] = 1;
    CHECK(munmap(contents, MO_PAGE) == 0);
}

// ---- Encoder -----------------------------------------------------------------------------------

static mo_status bind(mo_encoder *encoder, mo_buffer *in, mo_buffer *out, float value) {
    const add_params params = {4, value};
    mo_status status = mo_encoder_set_buffer(encoder, in, 0, 16, 0);
    if (status == MO_OK)
        status = mo_encoder_set_buffer(encoder, out, 16, 16, 1);
    if (status == MO_OK)
        status = mo_encoder_set_bytes(encoder, &params, sizeof params, 2);
    return status;
}

static void test_encoder(void) {
    float memory[8] = {1, 2, 3, 4, 0, 0, 0, 0};
    mo_buffer *buffer, *shifted;
    mo_encoder *encoder;
    CHECK(mo_buffer_borrow(memory, sizeof memory, &buffer) == MO_OK);
    CHECK(mo_buffer_borrow(memory + 4, 4 * sizeof *memory, &shifted) == MO_OK);
    CHECK(mo_encoder_begin(mo_default_device(), &encoder) == MO_OK);
    CHECK(mo_encoder_set_pipeline(encoder, pipeline_of("test_add")) == MO_OK);
    CHECK(bind(encoder, buffer, buffer, 10) == MO_OK);
    CHECK(mo_encoder_dispatch_threads(encoder, (mo_size){4, 1, 1}, (mo_size){2, 1, 1}) == MO_OK);
    CHECK(memory[4] == 0); // nothing runs before the commit

    // The second dispatch sees what the first one wrote; unchanged arguments stay bound.
    CHECK(mo_encoder_set_buffer(encoder, shifted, 0, 16, 0) == MO_OK);
    CHECK(mo_encoder_dispatch_threadgroups(encoder, (mo_size){1, 2, 3}, (mo_size){4, 5, 6}) ==
          MO_OK);
    mo_buffer_release(buffer); // the encoder has references of its own
    mo_buffer_release(shifted);
    CHECK_FAILS(mo_encoder_wait(encoder), MO_MISUSE, "commit");
    CHECK(mo_encoder_commit(encoder) == MO_OK);
    CHECK(mo_encoder_wait(encoder) == MO_OK);
    CHECK(mo_encoder_wait(encoder) == MO_OK);
    for (int i = 0; i < 4; i++)
        CHECK(memory[4 + i] == memory[i] + 20);
    CHECK(last_by_threadgroups);
    CHECK(last_grid.x == 1 && last_grid.y == 2 && last_grid.z == 3);
    CHECK(last_threads.x == 4 && last_threads.y == 5 && last_threads.z == 6);
    CHECK_FAILS(mo_encoder_commit(encoder), MO_MISUSE, "committed");
    CHECK_FAILS(mo_encoder_set_pipeline(encoder, pipeline_of("test_add")), MO_MISUSE, "committed");
    mo_encoder_free(encoder);
    mo_encoder_free(NULL);
}

static mo_status record_add(mo_encoder *encoder, mo_buffer *buffer, float value) {
    mo_status status = mo_encoder_set_pipeline(encoder, pipeline_of("test_add"));
    if (status == MO_OK)
        status = bind(encoder, buffer, buffer, value);
    if (status == MO_OK)
        status = mo_encoder_dispatch_threads(encoder, (mo_size){4, 1, 1}, (mo_size){4, 1, 1});
    return status;
}

static void test_rewind(void) {
    float memory[8] = {0};
    mo_buffer *buffer;
    mo_encoder *encoder;
    CHECK(mo_buffer_borrow(memory, sizeof memory, &buffer) == MO_OK);
    CHECK(mo_encoder_begin(mo_default_device(), &encoder) == MO_OK);
    CHECK(record_add(encoder, buffer, 1) == MO_OK);
    const size_t mark = mo_encoder_mark(encoder);
    CHECK(record_add(encoder, buffer, 2) == MO_OK);
    CHECK(record_add(encoder, buffer, 3) == MO_OK);
    mo_encoder_rewind(encoder, mark);
    CHECK(mo_encoder_mark(encoder) == mark);
    CHECK(mo_encoder_commit(encoder) == MO_OK && mo_encoder_wait(encoder) == MO_OK);
    CHECK(memory[4] == 1);
    mo_encoder_free(encoder);
    mo_buffer_release(buffer);
}

// ---- Interrupts --------------------------------------------------------------------------------

static void pause_ms(int milliseconds) {
    struct timespec pause = {.tv_nsec = milliseconds * 1000000L};
    nanosleep(&pause, NULL);
}

static int dispatched;

static mo_status pause_native(const mo_dispatch *dispatch) {
    (void)dispatch;
    dispatched++;
    pause_ms(20);
    return MO_OK;
}

static const mo_kernel pausing = {.name = "test_pausing", .native = pause_native};

static pthread_t caller;
static int checks, checks_elsewhere, interrupt_at;

// Says to stop the interrupt_at-th time that it is asked; -1: never.
static bool check_interrupt(void) {
    if (!pthread_equal(pthread_self(), caller))
        checks_elsewhere++;
    return ++checks == interrupt_at;
}

static void begin_interrupt_test(int at) {
    caller = pthread_self();
    checks = checks_elsewhere = 0;
    interrupt_at = at;
    mo_set_interrupt_check(check_interrupt);
    mo_begin_polling();
}

static mo_status run_pauses(int n) {
    mo_encoder *encoder;
    dispatched = 0;
    CHECK(mo_encoder_begin(mo_default_device(), &encoder) == MO_OK);
    CHECK(mo_encoder_set_pipeline(encoder, pipeline_of("test_pausing")) == MO_OK);
    for (int i = 0; i < n; i++)
        CHECK(mo_encoder_dispatch_threads(encoder, (mo_size){1, 1, 1}, (mo_size){1, 1, 1}) ==
              MO_OK);
    const mo_status status = mo_encoder_commit(encoder);
    CHECK(mo_encoder_wait(encoder) == status);
    mo_encoder_free(encoder);
    return status;
}

// An interrupt is noticed between two dispatches.
static void test_interrupt_between_dispatches(void) {
    CHECK(mo_register_kernel(&pausing) == MO_OK);
    begin_interrupt_test(1);
    CHECK_FAILS(run_pauses(50), MO_INTERRUPTED, "interrupted");
    CHECK(checks == 1 && dispatched < 50);
    begin_interrupt_test(-1);
    CHECK(run_pauses(1) == MO_OK && dispatched == 1 && checks == 0);
    CHECK(run_pauses(12) == MO_OK && dispatched == 12);
    CHECK(checks > 0 && checks < 11); // not at each one
    mo_set_interrupt_check(NULL);
}

static void test_encoder_refuses(void) {
    const mo_size one = {1, 1, 1};
    float memory[8] = {0};
    mo_buffer *buffer;
    mo_encoder *encoder;
    CHECK(mo_buffer_borrow(memory, sizeof memory, &buffer) == MO_OK);
    CHECK(mo_encoder_begin(mo_default_device(), &encoder) == MO_OK);
    CHECK_FAILS(mo_encoder_dispatch_threads(encoder, one, one), MO_MISUSE, "pipeline");
    CHECK_FAILS(mo_encoder_set_pipeline(encoder, find_counting_pipeline(NULL)), MO_MISUSE,
                "counting");
    CHECK(mo_encoder_set_pipeline(encoder, pipeline_of("test_add")) == MO_OK);
    CHECK_FAILS(mo_encoder_set_buffer(encoder, buffer, 32, 4, 0), MO_INVALID_VALUE, "offset 32");
    CHECK_FAILS(mo_encoder_set_buffer(encoder, buffer, 40, 4, 0), MO_INVALID_VALUE, "offset 40");
    CHECK_FAILS(mo_encoder_set_buffer(encoder, buffer, 4, 32, 0), MO_INVALID_VALUE, "32 bytes");
    CHECK_FAILS(mo_encoder_set_buffer(encoder, buffer, 0, 0, 0), MO_INVALID_VALUE, "0 bytes");
    CHECK_FAILS(mo_encoder_set_buffer(encoder, buffer, 0, 4, MO_MAX_ARGUMENTS), MO_INVALID_VALUE,
                "index");
    CHECK_FAILS(mo_encoder_set_bytes(encoder, memory, 0, 2), MO_INVALID_VALUE, "0 bytes");
    CHECK_FAILS(mo_encoder_set_bytes(encoder, memory, MO_MAX_BYTES + 1, 2), MO_INVALID_VALUE, "65");
    CHECK(mo_encoder_set_buffer(encoder, buffer, 0, 4, 0) == MO_OK);
    CHECK_FAILS(mo_encoder_dispatch_threads(encoder, one, one), MO_MISUSE, "argument 1");
    CHECK(bind(encoder, buffer, buffer, 1) == MO_OK);
    CHECK_FAILS(mo_encoder_dispatch_threads(encoder, (mo_size){1, 0, 1}, one), MO_INVALID_VALUE,
                "empty");
    CHECK_FAILS(mo_encoder_dispatch_threadgroups(encoder, one, (mo_size){1, 1, 0}),
                MO_INVALID_VALUE, "empty");
    CHECK(mo_encoder_set_bytes(encoder, memory, 4, 2) == MO_OK);
    CHECK_FAILS(mo_encoder_dispatch_threads(encoder, one, one), MO_MISUSE, "8 bytes");
    CHECK(mo_encoder_set_bytes(encoder, memory, 8, 1) == MO_OK);
    CHECK_FAILS(mo_encoder_dispatch_threads(encoder, one, one), MO_MISUSE, "argument 1");
    CHECK(bind(encoder, buffer, buffer, 1) == MO_OK);
    mo_buffer_freeze(buffer);
    CHECK_FAILS(mo_encoder_dispatch_threads(encoder, one, one), MO_MISUSE, "frozen");
    mo_buffer_release(buffer);
    mo_encoder_free(encoder);

    CHECK(mo_register_kernel(&failing) == MO_OK);
    CHECK(mo_encoder_begin(mo_default_device(), &encoder) == MO_OK);
    CHECK(mo_encoder_set_pipeline(encoder, pipeline_of("test_failing")) == MO_OK);
    CHECK(mo_encoder_dispatch_threads(encoder, one, one) == MO_OK);
    CHECK_FAILS(mo_encoder_commit(encoder), MO_DEVICE_ERROR, "gave up");
    CHECK(mo_encoder_wait(encoder) == MO_DEVICE_ERROR);
    CHECK(mo_encoder_wait(encoder) == MO_DEVICE_ERROR);
    mo_encoder_free(encoder);
}

// ---- Operations --------------------------------------------------------------------------------

// Two blocks, one a row: d = 1 and all q = 9, and d = -2 and all q = 0; so 1 and 16.
static unsigned char blocks[2 * MO_Q4_0_BLOCK_BYTES];
static float x[32], y[4];

static void fill_blocks(void) {
    memset(blocks, 0, sizeof blocks);
    blocks[1] = 0x3c;
    memset(blocks + 2, 0x99, 16);
    blocks[MO_Q4_0_BLOCK_BYTES + 1] = 0xc0;
    for (int i = 0; i < 32; i++)
        x[i] = (float)i;
}

static void test_operations(void) {
    const int64_t vector[] = {32}, result_shape[] = {2}, wrong_shape[] = {3}, seq[] = {2, 16};
    mo_buffer *w, *in, *out;
    mo_encoder *encoder;
    CHECK(mo_buffer_borrow(blocks, sizeof blocks, &w) == MO_OK);
    CHECK(mo_buffer_borrow(x, sizeof x, &in) == MO_OK);
    CHECK(mo_buffer_borrow(y, sizeof y, &out) == MO_OK);
    const mo_q4_0_matrix weight = {w, 0, 2, 32}, row = {w, MO_Q4_0_BLOCK_BYTES, 1, 32};
    const mo_array input = {in, 0, 1, vector};
    mo_result fresh_a = {0}, fresh_b = {0}, fresh_c = {0};
    mo_result given = {out, 4, 1, result_shape};
    CHECK(mo_encoder_begin(mo_default_device(), &encoder) == MO_OK);
    CHECK(mo_mul_mv_q4_0(encoder, &weight, &input, &given) == MO_OK);
    CHECK(mo_fused_dual_proj_q4_0(encoder, &row, &row, &input, &fresh_a, &fresh_b) == MO_OK);
    CHECK(mo_encoder_commit(encoder) == MO_OK && mo_encoder_wait(encoder) == MO_OK);
    CHECK(y[0] == 0 && y[1] == 496 && y[2] == 496 * 16 && y[3] == 0);
    CHECK(*(float *)mo_buffer_contents(fresh_a.buffer) == 496 * 16);
    CHECK(*(float *)mo_buffer_contents(fresh_b.buffer) == 496 * 16);
    mo_encoder_free(encoder);
    mo_buffer_release(fresh_a.buffer);
    mo_buffer_release(fresh_b.buffer);

    // What is wrong is said, nothing is recorded, and no result buffer is left behind.
    CHECK(mo_encoder_begin(mo_default_device(), &encoder) == MO_OK);
    fresh_a = fresh_b = (mo_result){0};
    const mo_q4_0_matrix beyond = {w, 2, 2, 32}, uneven = {w, 0, 1, 48}, empty = {w, 0, 0, 32};
    const mo_array outside = {in, 4, 1, vector}, odd = {in, 2, 1, result_shape};
    CHECK_FAILS(mo_mul_mv_q4_0(encoder, &beyond, &input, &fresh_a), MO_INVALID_VALUE, "36 bytes");
    CHECK_FAILS(mo_mul_mv_q4_0(encoder, &uneven, &input, &fresh_a), MO_INVALID_VALUE, "32");
    CHECK_FAILS(mo_mul_mv_q4_0(encoder, &empty, &input, &fresh_a), MO_INVALID_VALUE, "N is 0");
    CHECK_FAILS(mo_mul_mv_q4_0(encoder, &weight, &outside, &fresh_a), MO_INVALID_VALUE, "124");
    CHECK_FAILS(mo_qkv_split_f32(encoder, &odd, 1, 1, 1, &fresh_a, &fresh_b, &fresh_c),
                MO_INVALID_VALUE, "1 + 1 + 1 = 3");
    const mo_array misaligned = {in, 2, 1, wrong_shape};
    CHECK_FAILS(mo_qkv_split_f32(encoder, &misaligned, 1, 1, 1, &fresh_a, &fresh_b, &fresh_c),
                MO_INVALID_VALUE, "multiple of 4");
    mo_result wrong = {out, 0, 1, wrong_shape}, short_result = {out, 12, 1, result_shape};
    CHECK_FAILS(mo_mul_mv_q4_0(encoder, &weight, &input, &wrong), MO_INVALID_VALUE, "(3,)");
    CHECK_FAILS(mo_mul_mv_q4_0(encoder, &weight, &input, &short_result), MO_INVALID_VALUE,
                "too small");
    mo_result in_place = {in, 0, 1, result_shape};
    CHECK_FAILS(mo_mul_mv_q4_0(encoder, &weight, &input, &in_place), MO_INVALID_VALUE, "overlaps");
    CHECK_FAILS(mo_fused_dual_proj_q4_0(encoder, &weight, &row, &input, &fresh_a, &fresh_b),
                MO_INVALID_VALUE, "(1, 32)");
    CHECK(!fresh_a.buffer && !fresh_b.buffer && !fresh_c.buffer);
    memset(y, 0, sizeof y);
    CHECK(mo_encoder_commit(encoder) == MO_OK && mo_encoder_wait(encoder) == MO_OK);
    CHECK(y[0] == 0 && y[1] == 0 && y[2] == 0 && y[3] == 0);
    CHECK_FAILS(mo_mul_mv_q4_0(encoder, &weight, &input, &fresh_a), MO_MISUSE, "committed");
    CHECK(!fresh_a.buffer);
    mo_encoder_free(encoder);

    const mo_array qkv = {in, 0, 2, seq};
    CHECK(mo_encoder_begin(mo_default_device(), &encoder) == MO_OK);
    CHECK(mo_qkv_split_f32(encoder, &qkv, 1, 5, 10, &fresh_a, &fresh_b, &fresh_c) == MO_OK);
    CHECK(mo_encoder_commit(encoder) == MO_OK && mo_encoder_wait(encoder) == MO_OK);
    const float *q = mo_buffer_contents(fresh_a.buffer), *k = mo_buffer_contents(fresh_b.buffer);
    const float *v = mo_buffer_contents(fresh_c.buffer);
    CHECK(q[0] == 0 && q[1] == 16 && k[0] == 1 && k[9] == 21 && v[0] == 6 && v[19] == 31);
    mo_encoder_free(encoder);
    mo_buffer_release(fresh_a.buffer);
    mo_buffer_release(fresh_b.buffer);
    mo_buffer_release(fresh_c.buffer);
    mo_buffer_release(w);
    mo_buffer_release(in);
    mo_buffer_release(out);
}

// ---- Threads -----------------------------------------------------------------------------------

static atomic_int pieces_of_others, elements;

static void count_pieces(void *context, size_t begin, size_t end) {
    (void)context;
    elements += (int)(end - begin);
    if (!pthread_equal(pthread_self(), caller))
        pieces_of_others++;
    pause_ms(5); // time for the others to wake
}

// Whether another thread does a part of the work.
static bool work_is_shared(void) {
    caller = pthread_self();
    pieces_of_others = elements = 0;
    CHECK(mo_parallel_for(count_pieces, NULL, 1001, 10000) == MO_OK);
    CHECK(elements == 1001);
    return pieces_of_others > 0;
}

static void test_threads(void) {
    CHECK(mo_set_num_threads(3) == MO_OK);
    CHECK(work_is_shared());
    CHECK(mo_set_num_threads(1) == MO_OK);
    CHECK(!work_is_shared());
}

#ifndef EMULATED // qemu's own locks do not outlive a fork beside threads

static void test_fork(void) {
    CHECK(mo_set_num_threads(3) == MO_OK);
    CHECK(work_is_shared());
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) // has none of its parent's threads, and starts its own
        _exit(work_is_shared() ? 0 : 1);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

#endif

static atomic_uchar done[5000];

static void mark_done(void *context, size_t begin, size_t end) {
    (void)context;
    for (size_t i = begin; i < end; i++)
        done[i]++;
}

// Every piece is done, and once, however many threads and pieces there are.
static void test_pieces(void) {
    static const size_t sizes[] = {1, 2, 3, 64, 1025, 5000};
    static const size_t costs[] = {0, 1, 100, 60000, 5000000, SIZE_MAX};
    for (int64_t threads = 1; threads <= 9; threads += 2)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (size_t j = 0; j < sizeof costs / sizeof *costs; j++) {
                memset((void *)done, 0, sizeof done);
                CHECK(mo_set_num_threads(threads) == MO_OK);
                CHECK(mo_parallel_for(mark_done, NULL, sizes[i], costs[j]) == MO_OK);
                size_t once = 0;
                for (size_t k = 0; k < sizeof done; k++)
                    once += done[k] == (k < sizes[i]);
                CHECK(once == sizeof done);
            }
}

static size_t begins_of_caller[64], longest_piece;
static int pieces_of_caller;

static void note_piece(void *context, size_t begin, size_t end) {
    (void)context;
    if (!pthread_equal(pthread_self(), caller)) {
        pause_ms(30);
        return;
    }
    if (end - begin > longest_piece)
        longest_piece = end - begin;
    if (pieces_of_caller < 64)
        begins_of_caller[pieces_of_caller++] = begin;
}

// A thread walks over its own part of the work without jumps, and then helps the others. Work of
// ordinary size has few pieces, and long work short ones.
static void test_order_of_pieces(void) {
    caller = pthread_self();
    CHECK(mo_set_num_threads(2) == MO_OK);
    pieces_of_caller = 0;
    CHECK(mo_parallel_for(note_piece, NULL, 800, 10000) == MO_OK);
    CHECK(pieces_of_caller > 4 && pieces_of_caller <= 8);
    for (size_t i = 0; i < 4; i++)
        CHECK(begins_of_caller[i] == 100 * i);
    for (int64_t threads = 1; threads <= 2; threads++) {
        CHECK(mo_set_num_threads(threads) == MO_OK);
        longest_piece = 0;
        CHECK(mo_parallel_for(note_piece, NULL, 800, 10000000) == MO_OK); // 8 seconds, it says
        CHECK(longest_piece >= 1 && longest_piece <= 10);
    }
}

// The check is called on the caller's thread, in long work only, alone or with others; afterwards
// all threads are there for the next work.
static void test_interrupt_of_pieces(void) {
    for (int64_t threads = 1; threads <= 3; threads++) {
        CHECK(mo_set_num_threads(threads) == MO_OK);
        begin_interrupt_test(1);
        elements = 0;
        CHECK(mo_parallel_for(count_pieces, NULL, 1000, 1) == MO_OK); // small
        CHECK_FAILS(mo_parallel_for(count_pieces, NULL, 1000, 20000000), MO_INTERRUPTED,
                    "interrupted");
        CHECK(checks == 1 && elements < 2000);
        begin_interrupt_test(2);
        CHECK_FAILS(mo_parallel_for(count_pieces, NULL, 1000, 20000000), MO_INTERRUPTED,
                    "interrupted");
        CHECK(checks == 2 && checks_elsewhere == 0);
        begin_interrupt_test(1);
        for (int i = 0; i < 4; i++)
            CHECK(mo_parallel_for(mark_done, NULL, 1000, 1000) == MO_OK);
        CHECK(checks == 0);
        begin_interrupt_test(-1);
        CHECK(work_is_shared() == (threads > 1));
    }
    mo_set_interrupt_check(NULL);
}

// Much small work is long, too.
static void test_interrupt_of_small_work(void) {
    mo_status status = MO_OK;
    begin_interrupt_test(1);
    elements = 0;
    for (int i = 0; i < 100 && status == MO_OK; i++)
        status = mo_parallel_for(count_pieces, NULL, 1, 1);
    CHECK(status == MO_INTERRUPTED && elements < 100);
    mo_set_interrupt_check(NULL);
}

// The caller's first piece lasts until another thread has begun one, which lasts longer.
static void wait_for_another(void *context, size_t begin, size_t end) {
    (void)context, (void)begin, (void)end;
    elements++;
    if (!pthread_equal(pthread_self(), caller)) {
        pieces_of_others++;
        pause_ms(300);
    }
    while (pieces_of_others == 0)
        pause_ms(1);
}

// The caller also asks while it waits for the others.
static void test_interrupt_while_waiting(void) {
    CHECK(mo_set_num_threads(2) == MO_OK);
    begin_interrupt_test(1);
    pieces_of_others = elements = 0;
    CHECK_FAILS(mo_parallel_for(wait_for_another, NULL, 8, 1000000), MO_INTERRUPTED, "interrupted");
    CHECK(elements == 8);
    CHECK(checks == 1 && checks_elsewhere == 0);
    mo_set_interrupt_check(NULL);
}

static bool work_in_check(void) {
    if (++checks != interrupt_at)
        return false;
    CHECK(mo_parallel_for(mark_done, NULL, 5000, 100) == MO_OK);
    return false;
}

// What the check does with the pool is none of the work that it was called from.
static void test_work_of_the_check(void) {
    CHECK(mo_set_num_threads(3) == MO_OK);
    memset((void *)done, 0, sizeof done);
    begin_interrupt_test(1);
    mo_set_interrupt_check(work_in_check);
    elements = 0;
    CHECK(mo_parallel_for(count_pieces, NULL, 100, 20000000) == MO_OK);
    CHECK(elements == 100 && checks > 0 && done[0] == 1 && done[4999] == 1);
    mo_set_interrupt_check(NULL);
}

#ifndef EMULATED
static pid_t forked;

static atomic_uchar done_in_child[5000];

static void mark_done_in_child(void *context, size_t begin, size_t end) {
    (void)context;
    pause_ms(1);
    for (size_t i = begin; i < end; i++)
        done_in_child[i]++;
}

// The child has work of its own before it returns to its parent's.
static bool fork_in_check(void) {
    if (++checks != 1)
        return false;
    fflush(stdout);
    forked = fork();
    if (forked == 0) {
        CHECK(mo_parallel_for(mark_done_in_child, NULL, 5000, 100000) == MO_OK);
        size_t once = 0;
        for (size_t i = 0; i < 5000; i++)
            once += done_in_child[i] == 1;
        CHECK(once == 5000);
    }
    return false;
}

static void mark_slowly(void *context, size_t begin, size_t end) {
    pause_ms(5);
    mark_done(context, begin, end);
}

// Where the check forks, parent and child both complete the work.
static void test_fork_of_the_check(void) {
    CHECK(mo_set_num_threads(3) == MO_OK);
    memset((void *)done, 0, sizeof done);
    begin_interrupt_test(-1);
    mo_set_interrupt_check(fork_in_check);
    CHECK(mo_parallel_for(mark_slowly, NULL, 100, 20000000) == MO_OK);
    mo_set_interrupt_check(NULL);
    size_t undone = 0;
    for (int i = 0; i < 100; i++)
        undone += done[i] == 0;
    CHECK(undone == 0 && checks > 0);
    if (forked == 0)
        _exit(undone == 0 && work_is_shared() ? 0 : 1);
    int status;
    CHECK(waitpid(forked, &status, 0) == forked && status == 0);
}
#endif

// ---- Messages ----------------------------------------------------------------------------------

static void *fail_elsewhere(void *unused) {
    (void)unused;
    return (void *)(intptr_t)mo_set_num_threads(0);
}

static void test_messages_are_per_thread(void) {
    pthread_t thread;
    mo_device *device;
    void *status;
    CHECK(mo_device_find("here", &device) == MO_DEVICE_ERROR);
    CHECK(pthread_create(&thread, NULL, fail_elsewhere, NULL) == 0);
    pthread_join(thread, &status);
    CHECK((intptr_t)status == MO_INVALID_VALUE);
    CHECK(strstr(mo_status_message(), "here"));
}

int main(void) {
    fill_blocks();
    test_registry();
    test_pipelines();
    test_pipeline_is_made_once();
    test_devices();
    test_buffers();
    test_wrappers();
    test_frozen_buffers();
    test_memory_that_is_held();
    test_encoder();
    test_rewind();
    test_interrupt_between_dispatches();
    test_encoder_refuses();
    test_operations();
    test_threads();
    test_pieces();
    test_order_of_pieces();
    test_interrupt_of_pieces();
    test_interrupt_of_small_work();
    test_interrupt_while_waiting();
    test_work_of_the_check();
#ifndef EMULATED
    test_fork();
    test_fork_of_the_check();
#endif
    test_messages_are_per_thread();
    mo_buffer_cache_clear();
    printf("%d failures\n", failures);
    return failures > 0;
}
