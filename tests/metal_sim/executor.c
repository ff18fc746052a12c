/* Runs a dispatch: threadgroup after threadgroup, each thread on a stack of its own. A thread runs
 * until it must meet others, at a simdgroup operation or a barrier, or returns. */
#include "executor.h"
#include "fiber.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct run sim_run;
#define run sim_run

/* ---- failing ---- */

void sim_fail(const void *address, const struct sim_site *site, const char *format, ...) {
    va_list arguments;
    run.active = false; /* first: from here on the watchdog stays away */
    va_start(arguments, format);
    vsnprintf(run.message, sizeof run.message, format, arguments);
    va_end(arguments);
    run.failed = true;
    run.failed_address = (uintptr_t)address;
    if (site)
        run.failed_site = *site;
    void *abandoned;
    sim_fiber_switch(&abandoned, run.main_stack);
    abort();
}

/* "file:line" of an address in the shader's code, from its debug information. */
static void source_line(uintptr_t address, char *place, size_t size) {
    const struct sim_function *function = run.dispatch->function;
    char offset[32];
    struct sim_text lines = {0};
    snprintf(offset, sizeof offset, "%#lx", (unsigned long)(address - 1 - function->image));
    char *command[] = {"addr2line", "-i", "-s", "-e", function->path, offset, NULL};
    snprintf(place, size, "?");
    if (sim_run_program(command, &lines) == 0 && lines.data) {
        char *next = lines.data;
        for (char *line; (line = strsep(&next, "\n")) && *line;) {
            if (!strncmp(line, "metal_stdlib", strlen("metal_stdlib")))
                continue; /* inlined there: the caller is of interest */
            line[strcspn(line, " ")] = 0;
            snprintf(place, size, "%s", line);
            break;
        }
    }
    free(lines.data);
}

static void position_text(char *text, size_t size, unsigned thread) {
    const uint32_t *n = run.group_size;
    snprintf(text, size, "(%u, %u, %u)", thread % n[0], thread / n[0] % n[1], thread / n[0] / n[1]);
}

static void describe_failure(struct sim_text *error) {
    char place[256], thread[64];
    if (run.failed_address)
        source_line(run.failed_address, place, sizeof place);
    else
        snprintf(place, sizeof place, "%s:%d", run.failed_site.file, run.failed_site.line);
    position_text(thread, sizeof thread, run.current);
    sim_text_format(error, "kernel %s: %s: %s (threadgroup (%u, %u, %u), thread %s)",
                    run.dispatch->function->kernel->name, place, run.message, run.group[0],
                    run.group[1], run.group[2], thread);
}

/* ---- scheduling ---- */

static void enter(unsigned thread) {
    run.current = thread;
    run.stack_start = (uintptr_t)run.stacks + (uintptr_t)thread * STACK_BYTES;
}

static void switch_to(unsigned thread) {
    unsigned from = run.current;
    enter(thread);
    sim_fiber_switch(&run.thread[from].stack_pointer, run.thread[thread].stack_pointer);
}

/* The first thread of first..end that can run, in the set order; end where there is none. */
static unsigned ready(unsigned first, unsigned end) {
    if (sim_settings.reverse) {
        for (unsigned i = end; i-- > first;)
            if (run.thread[i].state == READY)
                return i;
    } else {
        for (unsigned i = first; i < end; i++)
            if (run.thread[i].state == READY)
                return i;
    }
    return end;
}

static bool same_text(const char *a, const char *b) {
    return a == b || !strcmp(a, b);
}

static bool same_site(const struct sim_site *a, const struct sim_site *b) {
    return a->line == b->line && a->column == b->column && same_text(a->file, b->file) &&
           same_text(a->operation, b->operation);
}

/* No thread can run and some wait: say who did not come. */
__attribute__((noreturn)) static void fail_divergence(void) {
    unsigned waiting = 0, other = run.threads;
    while (run.thread[waiting].state == RETURNED)
        waiting++;
    struct thread *at = &run.thread[waiting];
    bool whole = at->state == AT_BARRIER;
    unsigned first = whole ? 0 : waiting / SIM_SIMD_WIDTH * SIM_SIMD_WIDTH;
    unsigned end =
        whole || first + SIM_SIMD_WIDTH > run.threads ? run.threads : first + SIM_SIMD_WIDTH;
    for (unsigned i = first; i < end && other == run.threads; i++)
        if (run.thread[i].state != at->state || !same_site(run.thread[i].site, at->site))
            other = i;
    char who[64], does[300] = "has returned";
    position_text(who, sizeof who, other);
    if (run.thread[other].state != RETURNED)
        snprintf(does, sizeof does, "waits in %s at %s:%d", run.thread[other].site->operation,
                 run.thread[other].site->file, run.thread[other].site->line);
    enter(waiting);
    sim_fail(NULL, at->site, "divergent %s: not reached by every thread of the %s; thread %s %s",
             at->site->operation, whole ? "threadgroup" : "simdgroup", who, does);
}

/* The current thread cannot go on: let another run, its own simdgroup first. */
static void yield(void) {
    unsigned first = run.current / SIM_SIMD_WIDTH * SIM_SIMD_WIDTH, returned = 0;
    unsigned end = first + SIM_SIMD_WIDTH < run.threads ? first + SIM_SIMD_WIDTH : run.threads;
    unsigned next = ready(first, end);
    if (next == end && (next = ready(0, run.threads)) == run.threads) {
        for (unsigned i = 0; i < run.threads; i++)
            returned += run.thread[i].state == RETURNED;
        if (returned < run.threads)
            fail_divergence();
        void *finished;
        sim_fiber_switch(&finished, run.main_stack);
    }
    if (next != run.current)
        switch_to(next);
}

static void wait_at(enum thread_state state, const struct sim_site *site) {
    run.thread[run.current].state = state;
    run.thread[run.current].site = site;
    yield();
}

static void wake(unsigned first, unsigned count, enum thread_state state) {
    for (unsigned i = first; i < first + count && i < run.threads; i++)
        if (run.thread[i].state == state)
            run.thread[i].state = READY;
}

/* ---- where threads meet ---- */

METAL_SIM_API void sim_simd(const void *in, void *all, unsigned size, unsigned *active,
                            unsigned *lane, const struct sim_site *site) {
    unsigned me = run.current % SIM_SIMD_WIDTH, first = run.current - me;
    struct simdgroup *group = &run.simdgroup[run.current / SIM_SIMD_WIDTH];
    unsigned phase = group->phase & 1; /* the slots of two in turn: one may still be read */
    if (group->arrived && !same_site(group->site, site))
        sim_fail(NULL, site, "divergent %s: another thread of the simdgroup is in %s at %s:%d",
                 site->operation, group->site->operation, group->site->file, group->site->line);
    if (run.overdue)
        sim_fail_overdue(NULL, site);
    group->site = site;
    memcpy(group->slots[phase] + me * size, in, size);
    group->arrived |= 1u << me;
    if (group->arrived == group->live) {
        group->active[phase] = group->arrived;
        group->arrived = 0;
        group->phase++;
        wake(first, SIM_SIMD_WIDTH, AT_SIMD_OPERATION);
    } else {
        wait_at(AT_SIMD_OPERATION, site);
    }
    memcpy(all, group->slots[phase], (size_t)size * SIM_SIMD_WIDTH);
    *active = group->active[phase];
    *lane = me;
}

METAL_SIM_API void sim_missing_lane(unsigned lane, const struct sim_site *site) {
    sim_fail(NULL, site, "%s reads lane %u, which the simdgroup does not have", site->operation,
             lane);
}

/* From now on what was done before is ordered, for the kinds of memory that the barrier names. */
static void order(uint32_t ordered[2], int memory) {
    run.now++;
    if (memory & 1)
        ordered[DEVICE_MEMORY] = run.now;
    if (memory & 2)
        ordered[THREADGROUP_MEMORY] = run.now;
}

static void simdgroup_barrier(int memory, const struct sim_site *site) {
    unsigned me = run.current % SIM_SIMD_WIDTH, first = run.current - me;
    struct simdgroup *group = &run.simdgroup[run.current / SIM_SIMD_WIDTH];
    group->at_barrier |= 1u << me;
    if (group->at_barrier != group->live) {
        wait_at(AT_SIMDGROUP_BARRIER, site);
        return;
    }
    group->at_barrier = 0;
    order(group->ordered, memory);
    wake(first, SIM_SIMD_WIDTH, AT_SIMDGROUP_BARRIER);
}

METAL_SIM_API void sim_barrier(bool of_simdgroup, int memory, const struct sim_site *site) {
    unsigned first = of_simdgroup ? run.current / SIM_SIMD_WIDTH * SIM_SIMD_WIDTH : 0;
    unsigned end = of_simdgroup ? first + SIM_SIMD_WIDTH : run.threads;
    enum thread_state state = of_simdgroup ? AT_SIMDGROUP_BARRIER : AT_BARRIER;
    if (run.overdue)
        sim_fail_overdue(NULL, site);
    for (unsigned i = first; i < end && i < run.threads; i++)
        if (run.thread[i].state == state && !same_site(run.thread[i].site, site))
            sim_fail(NULL, site, "divergent %s: thread %u waits in another at %s:%d",
                     site->operation, i, run.thread[i].site->file, run.thread[i].site->line);
    if (of_simdgroup) {
        simdgroup_barrier(memory, site);
    } else if (++run.at_barrier < run.threads) {
        wait_at(AT_BARRIER, site);
    } else {
        run.at_barrier = 0;
        order(run.ordered, memory);
        wake(0, run.threads, AT_BARRIER);
    }
}

/* Called where a kernel's threadgroup variable is declared, by each thread. */
METAL_SIM_API void sim_threadgroup_variable(void *address, unsigned size, const char *name) {
    char text[80];
    size_t sum = size;
    for (unsigned i = run.region_count; i-- > 0;) {
        if (run.regions[i].kind != THREADGROUP_MEMORY)
            continue;
        if (run.regions[i].start == (uintptr_t)address)
            return;
        sum += run.regions[i].end - run.regions[i].start;
    }
    if (sum > SIM_MAX_THREADGROUP_MEMORY)
        sim_fail(__builtin_return_address(0), NULL,
                 "%zu bytes of threadgroup memory, the device has %d", sum,
                 SIM_MAX_THREADGROUP_MEMORY);
    snprintf(text, sizeof text, "threadgroup memory %s", name);
    if (!sim_region_add((uintptr_t)address, size, THREADGROUP_MEMORY, true, text))
        sim_fail(__builtin_return_address(0), NULL, "more variables than the simulator can watch");
    sim_regions_watch();
}

/* ---- arguments ---- */

struct argument_memory {
    char *threadgroup[SIM_MAX_BUFFERS];
    struct sim_value values[SIM_MAX_BUFFERS * 2 + 16]; /* pointers; the rest is set by thread */
};

#define REFUSE(...)                                                                                \
    do {                                                                                           \
        sim_text_format(error, "kernel %s: ", kernel->name);                                       \
        sim_text_format(error, __VA_ARGS__);                                                       \
        return false;                                                                              \
    } while (0)

static bool check_buffer(const struct sim_kernel *kernel, const struct sim_argument *argument,
                         const struct sim_type *type, const struct sim_binding *binding,
                         struct sim_text *error) {
    size_t room = binding->bound ? binding->length - binding->offset : 0;
    if (!type->pointer)
        REFUSE("argument %s has [[buffer]] but is neither pointer nor reference", argument->name);
    if (!binding->bound)
        REFUSE("nothing is bound at index %d, for argument %s", argument->index, argument->name);
    if (room < type->size)
        REFUSE("argument %s at index %d needs %u bytes, the buffer has %zu from its offset on",
               argument->name, argument->index, type->size, room);
    if (binding->from_bytes && (type->reference ? room != type->size : room % type->size))
        REFUSE("argument %s at index %d is of %u bytes, setBytes gave %zu", argument->name,
               argument->index, type->size, room);
    if (((uintptr_t)binding->base + binding->offset) % type->align)
        REFUSE("argument %s at index %d: offset %zu is not a multiple of its alignment, %u",
               argument->name, argument->index, binding->offset, type->align);
    if (binding->memory && !sim_memory_is_mapped(binding->memory))
        REFUSE("argument %s at index %d: the buffer's memory was freed before the GPU used it",
               argument->name, argument->index);
    int wanted = argument->space == 'd' && !type->read_only ? PROT_READ | PROT_WRITE : PROT_READ;
    if (binding->memory && binding->memory->protection >= 0 &&
        (binding->memory->protection & wanted) != wanted)
        REFUSE("argument %s at index %d: the pages behind the buffer are mapped read-only or not "
               "accessible at all",
               argument->name, argument->index);
    return true;
}

static bool check_scalar(const struct sim_kernel *kernel, const struct sim_argument *argument,
                         const struct sim_type *type, struct sim_text *error) {
    bool scalar_only = argument->kind >= SIM_THREAD_INDEX_IN_THREADGROUP;
    if (type->pointer || (type->size != 2 && type->size != 4) ||
        (scalar_only && type->components > 1))
        REFUSE("argument %s: its type does not fit its attribute", argument->name);
    return true;
}

static bool bind_arguments(const struct sim_dispatch *dispatch, struct argument_memory *memory,
                           struct sim_text *error) {
    const struct sim_kernel *kernel = dispatch->function->kernel;
    uint32_t used = 0, used_threadgroup = 0;
    for (int i = 0; i < kernel->argument_count; i++) {
        const struct sim_argument *argument = &kernel->arguments[i];
        const struct sim_type *type = &kernel->types[i];
        char name[80];
        if (argument->kind == SIM_BUFFER) {
            const struct sim_binding *binding = &dispatch->buffers[argument->index];
            used |= 1u << argument->index;
            if (!check_buffer(kernel, argument, type, binding, error))
                return false;
            snprintf(name, sizeof name, "buffer %d (%s)", argument->index, argument->name);
            memory->values[i].pointer = binding->base + binding->offset;
            sim_region_add((uintptr_t)binding->base + binding->offset,
                           binding->length - binding->offset, DEVICE_MEMORY,
                           argument->space == 'd' && !type->read_only, name);
        } else if (argument->kind == SIM_THREADGROUP_MEMORY) {
            size_t length = dispatch->threadgroup_memory[argument->index];
            used_threadgroup |= 1u << argument->index;
            if (!length)
                REFUSE("no threadgroup memory is set at index %d, for argument %s", argument->index,
                       argument->name);
            char *block = malloc(length);
            memory->threadgroup[argument->index] = memory->values[i].pointer = block;
            snprintf(name, sizeof name, "threadgroup memory %d (%s)", argument->index,
                     argument->name);
            sim_region_add((uintptr_t)block, length, THREADGROUP_MEMORY, true, name);
        } else if (!check_scalar(kernel, argument, type, error)) {
            return false;
        }
    }
    for (int i = 0; i < SIM_MAX_BUFFERS; i++) {
        if (dispatch->buffers[i].bound && dispatch->buffers[i].fresh && !(used >> i & 1))
            REFUSE("a buffer was bound at index %d, which the kernel does not use", i);
        if (dispatch->threadgroup_memory[i] && !(used_threadgroup >> i & 1))
            REFUSE("threadgroup memory was set at index %d, which the kernel does not use", i);
    }
    return true;
}

static void add_image(const struct sim_function *function) {
    char name[80];
    sim_region_add(function->constant_start, function->constant_end - function->constant_start,
                   CONSTANT_DATA, false, "constant data");
    sim_region_add(function->threadgroup_start,
                   function->threadgroup_end - function->threadgroup_start, GAP, false, "");
    for (unsigned i = 0; function->constants[i].name; i++)
        if (function->undefined_constants >> i & 1) {
            snprintf(name, sizeof name, "function constant %s (index %u), which has no value",
                     function->constants[i].name, function->constants[i].index);
            sim_region_add((uintptr_t)function->constants[i].address, function->constants[i].size,
                           FORBIDDEN, false, name);
        }
}

/* ---- running ---- */

static struct sim_value thread_values[SIM_MAX_THREADS][SIM_MAX_BUFFERS * 2 + 16];

static void thread_main(void) {
    run.dispatch->function->kernel->call(thread_values[run.current]);
    run.thread[run.current].state = RETURNED;
    yield();
    abort();
}

static void set_three(struct sim_value *value, const uint32_t *three) {
    for (int i = 0; i < 3; i++)
        value->component[i] = three[i];
}

/* The value of one argument that is no pointer, for the thread at position in the group. */
static void set_value(struct sim_value *value, int kind, const uint32_t *position, uint32_t thread,
                      const uint32_t *groups) {
    const struct sim_dispatch *dispatch = run.dispatch;
    uint32_t in_grid[3];
    for (int i = 0; i < 3; i++)
        in_grid[i] = run.group[i] * dispatch->group[i] + position[i];
    switch (kind) {
    case SIM_THREAD_POSITION_IN_GRID:
        set_three(value, in_grid);
        break;
    case SIM_THREADGROUP_POSITION_IN_GRID:
        set_three(value, run.group);
        break;
    case SIM_THREAD_POSITION_IN_THREADGROUP:
        set_three(value, position);
        break;
    case SIM_THREADS_PER_THREADGROUP:
        set_three(value, run.group_size);
        break;
    case SIM_DISPATCH_THREADS_PER_THREADGROUP:
        set_three(value, dispatch->group);
        break;
    case SIM_THREADGROUPS_PER_GRID:
        set_three(value, groups);
        break;
    case SIM_THREADS_PER_GRID:
        set_three(value, dispatch->grid);
        break;
    case SIM_THREAD_INDEX_IN_THREADGROUP:
        value->component[0] = thread;
        break;
    case SIM_THREAD_INDEX_IN_SIMDGROUP:
        value->component[0] = thread % SIM_SIMD_WIDTH;
        break;
    case SIM_SIMDGROUP_INDEX_IN_THREADGROUP:
        value->component[0] = thread / SIM_SIMD_WIDTH;
        break;
    case SIM_SIMDGROUPS_PER_THREADGROUP:
        value->component[0] = (run.threads + SIM_SIMD_WIDTH - 1) / SIM_SIMD_WIDTH;
        break;
    case SIM_THREADS_PER_SIMDGROUP:
        value->component[0] = SIM_SIMD_WIDTH;
        break;
    }
}

static void prepare_thread(uint32_t thread, const struct argument_memory *memory,
                           const uint32_t *groups) {
    const struct sim_kernel *kernel = run.dispatch->function->kernel;
    const uint32_t *n = run.group_size;
    const uint32_t position[3] = {thread % n[0], thread / n[0] % n[1], thread / n[0] / n[1]};
    for (int i = 0; i < kernel->argument_count; i++) {
        thread_values[thread][i] = memory->values[i];
        set_value(&thread_values[thread][i], kernel->arguments[i].kind, position, thread, groups);
    }
    char *top = run.stacks + (size_t)(thread + 1) * STACK_BYTES;
    run.thread[thread] = (struct thread){.stack_pointer = sim_fiber_prepare(top, thread_main)};
}

/* One threadgroup, from its position on; false: it failed. */
static bool run_group(const struct argument_memory *memory, const uint32_t *groups) {
    for (int i = 0; i < 3; i++) { /* at the grid's edge a threadgroup may be smaller */
        uint32_t left = run.dispatch->grid[i] - run.group[i] * run.dispatch->group[i];
        run.group_size[i] = left < run.dispatch->group[i] ? left : run.dispatch->group[i];
    }
    run.threads = run.group_size[0] * run.group_size[1] * run.group_size[2];
    run.group_start = ++run.now;
    run.group_number++;
    run.at_barrier = run.ordered[0] = run.ordered[1] = 0;
    for (unsigned first = 0; first < run.threads; first += SIM_SIMD_WIDTH) {
        struct simdgroup *group = &run.simdgroup[first / SIM_SIMD_WIDTH];
        unsigned lanes = run.threads - first;
        group->live = lanes >= SIM_SIMD_WIDTH ? ~0u : (1u << lanes) - 1;
        group->arrived = group->at_barrier = group->phase = group->ordered[0] = group->ordered[1] =
            0;
    }
    for (unsigned thread = 0; thread < run.threads; thread++)
        prepare_thread(thread, memory, groups);
    enter(ready(0, run.threads));
    run.active = true;
    sim_fiber_switch(&run.main_stack, run.thread[run.current].stack_pointer);
    run.active = false;
    return !run.failed;
}

static void run_grid(const struct argument_memory *memory) {
    uint32_t groups[3];
    for (int i = 0; i < 3; i++)
        groups[i] = (run.dispatch->grid[i] - 1) / run.dispatch->group[i] + 1;
    uint64_t total = (uint64_t)groups[0] * groups[1] * groups[2], count = total;
    if (sim_settings.sampled_threadgroups && sim_settings.sampled_threadgroups < total)
        count = sim_settings.sampled_threadgroups;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t step = sim_settings.reverse ? count - 1 - i : i;
        uint64_t number = count == total ? step
                          : count == 1
                              ? 0
                              : (uint64_t)((unsigned __int128)step * (total - 1) / (count - 1));
        run.group[0] = (uint32_t)(number % groups[0]);
        run.group[1] = (uint32_t)(number / groups[0] % groups[1]);
        run.group[2] = (uint32_t)(number / groups[0] / groups[1]);
        sim_counts.threadgroups++;
        if (!run_group(memory, groups))
            return;
    }
}

/* ---- the watchdog ---- */

enum { PATIENCE = 20 }; /* signals, a millisecond apart */

void sim_fail_overdue(const void *address, const struct sim_site *site) {
    run.overdue = 0;
    sim_fail(address, site, "still running after %u ms: an endless loop?",
             sim_settings.watchdog_ms);
}

/* Lets the thread fail at its next access or barrier; where none comes, at the interrupted
 * instruction. */
static void bark(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    if (!pthread_equal(run.owner, pthread_self()) || (!run.active && !run.overdue))
        return;
    run.active = false;
    if (++run.overdue < PATIENCE)
        return;
    const ucontext_t *interrupted = context;
#if defined(__x86_64__)
    uintptr_t address = (uintptr_t)interrupted->uc_mcontext.gregs[REG_RIP];
#else
    uintptr_t address = (uintptr_t)interrupted->uc_mcontext.pc;
#endif
    const struct sim_function *function = run.dispatch->function;
    if (address >= function->constant_start && address < function->constant_end)
        sim_fail_overdue((void *)(address + 1), NULL);
}

static timer_t start_watchdog(void) {
    int number = SIGRTMAX - 2;
    struct sigaction action = {.sa_sigaction = bark,
                               .sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART};
    sigaction(number, &action, NULL);
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = number};
    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    timer_t timer;
    if (timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer))
        abort();
    unsigned ms = sim_settings.watchdog_ms;
    struct itimerspec when = {{0, 1000000}, {ms / 1000, ms % 1000 * 1000000 + 1}};
    timer_settime(timer, 0, &when, NULL);
    return timer;
}

/* ---- the whole ---- */

static void make_stacks(void) {
    if (run.stacks)
        return;
    size_t size = (size_t)SIM_MAX_THREADS * STACK_BYTES;
    run.stacks = mmap(NULL, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (run.stacks == MAP_FAILED)
        abort();
    for (size_t i = 0; i < SIM_MAX_THREADS; i++) /* a stack that overflows must not meet the next */
        mprotect(run.stacks + i * STACK_BYTES, 4096, PROT_NONE);
}

bool sim_execute(const struct sim_dispatch *dispatch, struct sim_text *error) {
    struct argument_memory memory = {0};
    struct sim_zone *zones;
    make_stacks();
    run.dispatch = dispatch;
    run.failed = false;
    run.overdue = 0;
    run.owner = pthread_self();
    run.accesses = run.group_number = run.now = 0;
    run.region_count = 0;
    sim_counts.dispatches++;

    add_image(dispatch->function);
    bool bound = bind_arguments(dispatch, &memory, error);
    if (bound) {
        size_t count = sim_forbidden_zones(&zones);
        sim_regions_cut(zones, count);
        free(zones);
        sim_regions_watch();
        timer_t timer = start_watchdog();
        unsigned long state = sim_fp_begin(dispatch->function->fast_math);
        run_grid(&memory);
        sim_fp_restore(state);
        timer_delete(timer);
        sim_counts.accesses += run.accesses;
        if (run.failed)
            describe_failure(error);
    }
    sim_regions_free();
    for (int i = 0; i < SIM_MAX_BUFFERS; i++)
        free(memory.threadgroup[i]);
    return bound && !run.failed;
}
