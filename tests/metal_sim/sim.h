/* What the simulator's own parts share; see README.md for who does what. */
#ifndef SIM_H
#define SIM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "metal_sim.h"
#include "msl/sim_abi.h"

enum {
    SIM_MAX_BUFFERS = 31,
    SIM_MAX_SET_BYTES = 4096,
    SIM_MAX_THREADS = 1024,
    SIM_SIMD_WIDTH = 32,
    SIM_PAGE = 16384,
    SIM_MAX_THREADGROUP_MEMORY = 32768,
    SIM_FILL = 0xA5, /* what new memory holds */
};

/* ---- control.c: settings, reports, faults, counts ---- */

struct sim_settings {
    bool reverse, device_present;
    size_t sampled_threadgroups, max_buffer_length, max_total_threads;
    unsigned status_reads, watchdog_ms;
    int apple_family, system_major, system_minor;
};

struct sim_counts {
    atomic_size_t command_buffers, dispatches, threadgroups, accesses;
    atomic_size_t fast_math_libraries, compilations;
    atomic_size_t in_flight;
};

struct sim_zone {
    uintptr_t start, end;
};

extern struct sim_settings sim_settings;
extern struct sim_counts sim_counts;

/* Writes down a broken rule. Allocates nothing, so a signal handler may call it. */
void sim_report(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Counts a call that Metal may refuse; true where the injected fault hits it. */
bool sim_fault(const char *call);
bool sim_fault_is_silent(void);
void sim_object_created(const char *class_name);
void sim_object_destroyed(const char *class_name);
const char *sim_shader_cache(void);
/* The forbidden zones, ordered; the array is the caller's to free. */
size_t sim_forbidden_zones(struct sim_zone **zones);

/* ---- text.c: text that grows ---- */

struct sim_text {
    char *data;
    size_t length, capacity;
};

void sim_text_add(struct sim_text *text, const char *data, size_t length);
void sim_text_format(struct sim_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Runs a program, its output goes to text (if any); its exit status, -1 where it could not start.
 */
int sim_run_program(char *const *arguments, struct sim_text *output);

/* ---- front_end.c: MSL to C++ ---- */

/* Takes preprocessed MSL; the C++ text in out, or false and the error. */
bool sim_front_end(const char *source, struct sim_text *out, struct sim_text *error);

/* ---- spaces.c: address spaces in LLVM's text ---- */

bool sim_check_spaces(const char *module, struct sim_text *error);

/* ---- library.c: compiling and loading shaders ---- */

struct sim_compile_options {
    int language; /* 240 is MSL 2.4 */
    bool fast_math;
};

struct sim_constant_value {
    unsigned index, type; /* MTLDataType */
    uint64_t bits;
};

struct sim_function; /* a kernel, loaded with its function constants */

/* The path of the shared object, to be freed; or NULL and the error. */
char *sim_compile(const char *source, const struct sim_compile_options *options,
                  struct sim_text *error);
struct sim_function *sim_load(const char *path, const char *name, bool fast_math,
                              const struct sim_constant_value *values, size_t count,
                              struct sim_text *error);
void sim_unload(struct sim_function *function);
/* Bytes of threadgroup variables in the function's library. */
size_t sim_threadgroup_bytes(const struct sim_function *function);
/* The names of all kernels, one a line. */
bool sim_kernel_names(const char *path, struct sim_text *names);

struct sim_function {
    void *handle;
    char *path; /* of the shared object that holds its debug information */
    bool fast_math;
    const struct sim_kernel *kernel;
    uintptr_t image, constant_start, constant_end; /* where it was loaded, and its read-only data */
    uintptr_t threadgroup_start, threadgroup_end;  /* its threadgroup variables, and gaps between */
    const struct sim_function_constant *constants;
    uint64_t undefined_constants; /* bit i: constants[i] has no value */
};

/* ---- flight.c: memory that the GPU uses ---- */

struct sim_memory {
    char *base;
    size_t length, mapped;
    int protection; /* what the CPU may do with it when it is not in flight; -1: not known */
    bool owned, touched;
    int readers, writers; /* command buffers in flight */
    struct sim_memory *next;
};

/* Memory of its own, filled, with nothing else within some gigabytes behind it. */
struct sim_memory *sim_memory_new(size_t length);
/* Around memory of the caller; NULL where it is not mapped. */
struct sim_memory *sim_memory_wrap(void *base, size_t length);
void sim_memory_free(struct sim_memory *memory);
/* From commit to completion the CPU may not write it, nor read it where the GPU writes. */
void sim_flight_begin(struct sim_memory *memory, bool writes);
void sim_flight_end(struct sim_memory *memory, bool writes);
/* While the GPU itself runs, nothing is protected. */
void sim_flight_open(void);
void sim_flight_close(void);
/* Nothing is in flight any more: for a new start after a test that left command buffers behind. */
void sim_flight_forget(void);
bool sim_memory_is_mapped(const struct sim_memory *memory);
size_t sim_memory_total(void);

/* ---- executor.c ---- */

struct sim_binding {
    char *base;
    size_t length, offset;
    bool bound, from_bytes, fresh; /* fresh: set since the last dispatch */
    const struct sim_memory *memory;
};

struct sim_dispatch {
    const struct sim_function *function;
    struct sim_binding buffers[SIM_MAX_BUFFERS];
    size_t threadgroup_memory[SIM_MAX_BUFFERS];
    uint32_t grid[3], group[3]; /* in threads */
};

/* Runs it to the end. False: a rule was broken; the report is in error. */
bool sim_execute(const struct sim_dispatch *dispatch, struct sim_text *error);

#endif
