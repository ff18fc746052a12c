// The CUDA device through the C API, with the driver of the tests: what an encoder moves and when,
// command buffers, discarding, threads. Prints what failed; exit status 1 then.

#include "buffer.h"
#include "device.h"
#include "encoder.h"
#include "mlxops.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("%s:%d: %s is false; last message: %s\n", __FILE__, __LINE__, #condition,       \
                   mo_status_message());                                                           \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

// ---- The driver of the tests -------------------------------------------------------------------

static const char *(*transfers)(void), *(*reports)(void);
static size_t (*allocated)(void), (*registered)(void);
static long (*in_flight)(void), (*depth)(void), (*calls)(const char *);

static void find(void *library, const char *name, void *function) {
    void *address = dlsym(library, name);
    if (!address) {
        printf("%s: %s\n", name, dlerror());
        exit(1);
    }
    memcpy(function, &address, sizeof address);
}

static void find_driver(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    find(library, "fake_cuda_transfers", &transfers);
    find(library, "fake_cuda_reports", &reports);
    find(library, "fake_cuda_allocated", &allocated);
    find(library, "fake_cuda_registered", &registered);
    find(library, "fake_cuda_in_flight", &in_flight);
    find(library, "fake_cuda_depth", &depth);
    find(library, "fake_cuda_calls", &calls);
}

static bool moved(const char *expected) {
    const char *there = transfers();
    const bool same = strcmp(there, expected) == 0;
    if (!same)
        printf("moved %s\n", there);
    return same;
}

// ---- Arrays of four channels, and their splits -------------------------------------------------

static mo_device *cuda;

static mo_buffer *floats(size_t n) {
    mo_buffer *buffer = NULL;
    CHECK(mo_buffer_alloc(n * sizeof(float), &buffer) == MO_OK);
    float *values = mo_buffer_contents(buffer);
    for (size_t i = 0; i < n; i++)
        values[i] = (float)i;
    return buffer;
}

static float at(const mo_buffer *buffer, size_t i) {
    return ((const float *)mo_buffer_contents(buffer))[i];
}

static mo_encoder *begin(void) {
    mo_encoder *encoder = NULL;
    CHECK(mo_encoder_begin(cuda, &encoder) == MO_OK);
    return encoder;
}

static void run(mo_encoder *encoder) {
    CHECK(mo_encoder_commit(encoder) == MO_OK);
    CHECK(mo_encoder_wait(encoder) == MO_OK);
    mo_encoder_free(encoder);
}

// Splits rows of 1 + 1 + 2 floats from the offset on into results at the offsets of a buffer.
static mo_status split(mo_encoder *encoder, mo_buffer *from, size_t offset, int64_t rows,
                       mo_buffer *to, const size_t offsets[3]) {
    const int64_t shape[2] = {rows, 4}, one[2] = {rows, 1}, two[2] = {rows, 2};
    const mo_array qkv = {from, offset * sizeof(float), 2, shape};
    mo_result q = {to, offsets[0] * sizeof(float), 2, one};
    mo_result k = {to, offsets[1] * sizeof(float), 2, one};
    mo_result v = {to, offsets[2] * sizeof(float), 2, two};
    return mo_qkv_split_f32(encoder, &qkv, 1, 1, 2, &q, &k, &v);
}

// What passes between two operations stays on the GPU, and comes back once.
static void test_chain(void) {
    mo_buffer *a = floats(64), *b = floats(64), *c = floats(64);
    const long launches = calls("cuLaunchKernel"), waits = calls("cuStreamSynchronize");
    transfers();
    mo_encoder *encoder = begin();
    CHECK(split(encoder, a, 0, 16, b, (size_t[]){0, 16, 32}) == MO_OK);
    CHECK(split(encoder, b, 0, 16, c, (size_t[]){0, 16, 32}) == MO_OK);
    CHECK(at(b, 1) == 1 && calls("cuLaunchKernel") == launches); // nothing runs before the commit
    run(encoder);
    CHECK(moved(">256 <256 <256 "));
    CHECK(calls("cuStreamSynchronize") == waits + 1);
    for (size_t i = 0; i < 16; i++) {
        CHECK(at(b, i) == (float)(4 * i) && at(b, 16 + i) == (float)(4 * i + 1));
        CHECK(at(b, 32 + 2 * i) == (float)(4 * i + 2) && at(c, i) == at(b, 4 * i));
        CHECK(at(c, 33 + 2 * i) == at(b, 4 * i + 3));
    }
    mo_buffer_release(a);
    mo_buffer_release(b);
    mo_buffer_release(c);
}

// Parts of one buffer that overlap, touch or are apart, read and written in one commit.
static void test_parts_of_one_buffer(void) {
    mo_buffer *a = floats(1024), *whole = floats(1024);
    transfers();
    mo_encoder *encoder = begin();
    // Reads 0 to 16 and 8 to 24, writes 100 to 116, then reads 108 to 124: half of it is new.
    CHECK(split(encoder, a, 0, 4, a, (size_t[]){100, 104, 108}) == MO_OK);
    CHECK(split(encoder, a, 8, 4, a, (size_t[]){200, 204, 208}) == MO_OK);
    CHECK(split(encoder, a, 108, 4, a, (size_t[]){300, 304, 308}) == MO_OK);
    // Overwrites what was read, and reads that.
    CHECK(split(encoder, a, 600, 4, a, (size_t[]){0, 4, 8}) == MO_OK);
    CHECK(split(encoder, a, 0, 4, a, (size_t[]){900, 904, 908}) == MO_OK);
    run(encoder);
    CHECK(moved(">96 >64 >64 <64 <64 <64 <64 <64 "));

    float expected[1024];
    memcpy(expected, mo_buffer_contents(whole), sizeof expected);
    static const size_t steps[5][4] = {{0, 100, 104, 108},
                                       {8, 200, 204, 208},
                                       {108, 300, 304, 308},
                                       {600, 0, 4, 8},
                                       {0, 900, 904, 908}};
    for (size_t s = 0; s < 5; s++)
        for (size_t i = 0; i < 4; i++) {
            const float *row = expected + steps[s][0] + 4 * i;
            expected[steps[s][1] + i] = row[0];
            expected[steps[s][2] + i] = row[1];
            expected[steps[s][3] + 2 * i] = row[2];
            expected[steps[s][3] + 2 * i + 1] = row[3];
        }
    CHECK(memcmp(expected, mo_buffer_contents(a), sizeof expected) == 0);
    mo_buffer_release(a);
    mo_buffer_release(whole);
}

// Two parts far from each other in a large buffer: what lies between takes no memory.
static void test_parts_far_apart(void) {
    const size_t n = (size_t)1 << 22;
    mo_buffer *a = floats(n), *b = floats(64);
    mo_buffer_cache_clear();
    const size_t before = allocated();
    mo_encoder *encoder = begin();
    CHECK(split(encoder, a, 0, 4, b, (size_t[]){0, 4, 8}) == MO_OK);
    CHECK(split(encoder, a, n - 16, 4, b, (size_t[]){16, 20, 24}) == MO_OK);
    run(encoder);
    CHECK(allocated() - before <= 1 << 16);
    CHECK(at(b, 3) == 12 && at(b, 16) == (float)(n - 16));
    mo_buffer_release(a);
    mo_buffer_release(b);
}

// The wide kernel wants multiples of 16 bytes, also where a narrow one uses the same memory from
// another byte on.
static void test_alignment(void) {
    const int64_t shape[2] = {2, 12}, part[2] = {2, 4};
    for (size_t first = 0; first < 8; first++) {
        mo_buffer *a = floats(1024), *b = floats(1024);
        mo_encoder *encoder = begin();
        CHECK(split(encoder, a, first, 8, b, (size_t[]){first, first + 8, first + 16}) == MO_OK);
        const mo_array qkv = {a, 16 * sizeof(float), 2, shape};
        mo_result q = {b, 400 * sizeof(float), 2, part}, k = {b, 408 * sizeof(float), 2, part};
        mo_result v = {b, 416 * sizeof(float), 2, part};
        CHECK(mo_qkv_split_f32(encoder, &qkv, 4, 4, 4, &q, &k, &v) == MO_OK);
        run(encoder);
        CHECK(at(b, 400) == 16 && at(b, 407) == 31 && at(b, 423) == 39);
        CHECK(at(b, first + 1) == (float)first + 4);
        mo_buffer_release(a);
        mo_buffer_release(b);
    }
}

// Memory of the caller's, at any address.
static void test_borrowed(void) {
    static float memory[200], result[200];
    for (size_t shift = 0; shift < 5; shift++) {
        mo_buffer *in, *out;
        for (size_t i = 0; i < 200; i++)
            memory[i] = (float)(i + shift);
        CHECK(mo_buffer_borrow(memory + shift, 64 * sizeof *memory, &in) == MO_OK);
        CHECK(mo_buffer_borrow(result + 2 * shift, 64 * sizeof *memory, &out) == MO_OK);
        const size_t was_registered = registered();
        mo_encoder *encoder = begin();
        CHECK(split(encoder, in, 0, 16, out, (size_t[]){0, 16, 32}) == MO_OK);
        run(encoder);
        CHECK(registered() == was_registered);
        for (size_t i = 0; i < 16; i++)
            CHECK(result[2 * shift + i] == memory[shift + 4 * i] &&
                  result[2 * shift + 33 + 2 * i] == memory[shift + 4 * i + 3]);
        mo_buffer_release(in);
        mo_buffer_release(out);
    }
}

// A frozen buffer goes to the GPU once, also one that is borrowed; and nobody writes to it.
static void test_frozen(void) {
    static float memory[64];
    mo_buffer *in, *out = floats(64);
    CHECK(mo_buffer_borrow(memory, sizeof memory, &in) == MO_OK);
    memory[1] = 5;
    mo_buffer_freeze(in);
    transfers();
    const size_t before = allocated();
    for (int i = 0; i < 3; i++) {
        mo_encoder *encoder = begin();
        CHECK(split(encoder, in, 0, 16, out, (size_t[]){0, 16, 32}) == MO_OK);
        run(encoder);
        CHECK(moved(i == 0 ? ">256 <256 " : "<256 "));
        CHECK(at(out, 16) == 5);
    }
    mo_encoder *encoder = begin();
    CHECK(split(encoder, out, 0, 4, in, (size_t[]){0, 4, 8}) == MO_MISUSE);
    CHECK(strstr(mo_status_message(), "frozen"));
    run(encoder);
    CHECK(allocated() >= before + sizeof memory);
    mo_buffer_release(in);
    CHECK(allocated() <= before + (1 << 16)); // the block of the first commit
    mo_buffer_release(out);
}

static int asked;

static bool interrupt_second(void) {
    return ++asked == 2;
}

static mo_status record(mo_encoder *encoder, mo_buffer *a, size_t commands) {
    mo_status status = MO_OK;
    for (size_t i = 0; i < commands && status == MO_OK; i++) {
        mo_encoder_reserve(encoder, 0.6); // one fills a command buffer
        status = split(encoder, a, 16 * i, 4, a, (size_t[]){16 * i + 16, 16 * i + 20, 16 * i + 24});
    }
    return status;
}

// Several command buffers: a wait between each two, where an interrupt is noticed.
static void test_command_buffers(void) {
    mo_buffer *a = floats(1024);
    mo_encoder *encoder = begin();
    long waits = calls("cuStreamSynchronize"), launches = calls("cuLaunchKernel");
    CHECK(record(encoder, a, 4) == MO_OK);
    transfers();
    run(encoder);
    CHECK(calls("cuStreamSynchronize") == waits + 4);
    CHECK(calls("cuLaunchKernel") == launches + 4);
    CHECK(moved(">64 <256 "));
    CHECK(at(a, 64) == 0 && at(a, 79) == 15);

    waits = calls("cuStreamSynchronize"), launches = calls("cuLaunchKernel");
    encoder = begin();
    CHECK(record(encoder, a, 4) == MO_OK);
    mo_set_interrupt_check(interrupt_second);
    CHECK(mo_encoder_commit(encoder) == MO_OK);
    CHECK(mo_encoder_wait(encoder) == MO_INTERRUPTED);
    CHECK(mo_encoder_wait(encoder) == MO_INTERRUPTED);
    mo_set_interrupt_check(NULL);
    CHECK(asked == 2 && calls("cuLaunchKernel") == launches + 2);
    CHECK(in_flight() == 0);
    mo_encoder_free(encoder);
    mo_buffer_release(a);
}

// Freed without a wait: what is under way ends, the rest is not begun, nothing comes back.
static void test_discard(void) {
    mo_buffer *a = floats(1024);
    const long launches = calls("cuLaunchKernel");
    mo_encoder *encoder = begin();
    CHECK(record(encoder, a, 3) == MO_OK);
    mo_encoder_free(encoder);
    CHECK(calls("cuLaunchKernel") == launches);

    encoder = begin();
    CHECK(record(encoder, a, 3) == MO_OK);
    transfers();
    CHECK(mo_encoder_commit(encoder) == MO_OK);
    mo_encoder_free(encoder);
    CHECK(calls("cuLaunchKernel") == launches + 1 && in_flight() == 0);
    CHECK(moved(">64 ") && at(a, 17) == 17);

    encoder = begin();
    run(encoder); // of nothing
    mo_buffer_release(a);
}

// A grid that CUDA does not have.
static void test_grid(void) {
    const mo_size huge = {1, (uint64_t)65535 * 65535 + 1, 1}, deep = {1, 1, 2}, one = {1, 1, 1};
    const mo_pipeline *pipeline;
    mo_buffer *a = floats(64);
    CHECK(mo_find_pipeline(cuda, "qkv_split_f32", NULL, 0, &pipeline) == MO_OK);
    for (int i = 0; i < 2; i++) {
        const uint32_t params[5] = {1, 1, 1, 2, 4};
        mo_encoder *encoder = begin();
        CHECK(mo_encoder_set_pipeline(encoder, pipeline) == MO_OK);
        for (size_t j = 0; j < 4; j++)
            CHECK(mo_encoder_set_buffer(encoder, a, 64 * j, 16, j) == MO_OK);
        CHECK(mo_encoder_set_bytes(encoder, params, sizeof params, 4) == MO_OK);
        CHECK(mo_encoder_dispatch_threadgroups(encoder, i ? deep : huge, one) == MO_OK);
        CHECK(mo_encoder_commit(encoder) == MO_DEVICE_ERROR);
        CHECK(strstr(mo_status_message(), "qkv_split_f32") &&
              strstr(mo_status_message(), i ? "1 x 1 x 2" : "4294836226"));
        CHECK(mo_encoder_wait(encoder) == MO_DEVICE_ERROR);
        mo_encoder_free(encoder);
    }
    mo_buffer_release(a);
}

// ---- Host memory that runs out -----------------------------------------------------------------

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *memory, size_t size);

// The allocation of this thread that fails, counted from 1; 0: none.
static _Thread_local int failing;

static bool fails(void) {
    return failing > 0 && --failing == 0;
}

void *__wrap_malloc(size_t size) {
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size) {
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *memory, size_t size) {
    return fails() ? NULL : __real_realloc(memory, size);
}

// Two splits, of a frozen buffer and of an own one, each in its own parts of the result.
static mo_status split_both(mo_buffer *frozen, mo_buffer *own, mo_buffer *out) {
    mo_encoder *encoder;
    mo_status status = mo_encoder_begin(cuda, &encoder);
    if (status != MO_OK)
        return status;
    status = split(encoder, frozen, 0, 4, out, (size_t[]){0, 16, 32});
    if (status == MO_OK)
        status = split(encoder, own, 0, 4, out, (size_t[]){64, 80, 96});
    if (status == MO_OK)
        status = mo_encoder_commit(encoder);
    if (status == MO_OK)
        status = mo_encoder_wait(encoder);
    mo_encoder_free(encoder);
    return status;
}

// Fails the n-th allocation of a use of fresh buffers; false if there are not that many.
static bool try_without(int n) {
    mo_buffer *frozen = floats(64), *own = floats(64), *out = floats(128);
    mo_buffer_freeze(frozen);
    failing = n;
    const mo_status status = split_both(frozen, own, out);
    const bool failed = failing == 0;
    failing = 0;
    CHECK(status == (failed ? MO_OUT_OF_MEMORY : MO_OK));
    CHECK(!failed || strstr(mo_status_message(), "out of memory"));
    CHECK(split_both(frozen, own, out) == MO_OK && at(out, 1) == 4 && at(out, 64 + 17) == 5);
    mo_buffer_release(frozen);
    mo_buffer_release(own);
    mo_buffer_release(out);
    mo_buffer_cache_clear();
    CHECK(allocated() == 0 && registered() == 0 && in_flight() == 0 && depth() == 0);
    return failed;
}

static void test_host_memory(void) {
    const mo_pipeline *pipeline;
    mo_status status = MO_OUT_OF_MEMORY;
    int attempts = 0;
    for (; status == MO_OUT_OF_MEMORY; attempts++) {
        failing = attempts + 1;
        status = mo_find_pipeline(cuda, "qkv_split_f32", NULL, 0, &pipeline);
        failing = 0;
    }
    CHECK(status == MO_OK && attempts == 3); // of the registry, and of the module
    int n = 1;
    while (n < 100 && try_without(n))
        n++;
    CHECK(n > 20);
}

// ---- Threads -----------------------------------------------------------------------------------

static mo_buffer *shared;

static void *use(void *unused) {
    (void)unused;
    for (int i = 0; i < 40; i++) {
        mo_buffer *out = floats(64), *own = floats(64 + (size_t)i);
        mo_buffer_freeze(own);
        mo_encoder *encoder = begin();
        if (split(encoder, shared, 0, 16, out, (size_t[]){0, 16, 32}) != MO_OK ||
            mo_encoder_commit(encoder) != MO_OK || mo_encoder_wait(encoder) != MO_OK ||
            at(out, 15) != 60 || at(out, 16) != 1)
            return out;
        mo_encoder_free(encoder);
        encoder = begin();
        if (split(encoder, own, 0, 16, out, (size_t[]){0, 16, 32}) != MO_OK ||
            mo_encoder_commit(encoder) != MO_OK || mo_encoder_wait(encoder) != MO_OK ||
            at(out, 1) != 4)
            return out;
        mo_encoder_free(encoder);
        mo_buffer_release(own);
        mo_buffer_release(out);
        if (i % 8 == 0)
            mo_buffer_cache_clear();
    }
    return NULL;
}

static void test_threads(void) {
    pthread_t threads[6];
    shared = floats(64);
    mo_buffer_freeze(shared);
    for (int i = 0; i < 6; i++)
        CHECK(pthread_create(&threads[i], NULL, use, NULL) == 0);
    for (int i = 0; i < 6; i++) {
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        CHECK(!failed);
    }
    mo_buffer_release(shared);
}

int main(void) {
    find_driver();
    CHECK(mo_device_find("cuda", &cuda) == MO_OK);
    if (!cuda)
        return 1;
    test_host_memory();
    test_chain();
    test_parts_of_one_buffer();
    test_parts_far_apart();
    test_alignment();
    test_borrowed();
    test_frozen();
    test_command_buffers();
    test_discard();
    test_grid();
    test_threads();
    mo_buffer_cache_clear();
    CHECK(allocated() == 0 && registered() == 0 && in_flight() == 0 && depth() == 0);
    CHECK(strcmp(reports(), "") == 0);
    printf("%s%d failures\n", reports(), failures);
    return failures != 0;
}
