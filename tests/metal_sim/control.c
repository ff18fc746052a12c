/* Settings, reports, injected faults and counts: the state behind metal_sim.h. */
#include "sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct sim_settings defaults = {
    .device_present = true,
    .max_buffer_length = (size_t)8 << 30,
    .max_total_threads = SIM_MAX_THREADS,
    .status_reads = 3,
    .watchdog_ms = 20000,
    .apple_family = 7,
    .system_major = 15,
};

struct sim_settings sim_settings;
struct sim_counts sim_counts;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void start(void) {
    sim_settings = defaults;
}

/* ---- reports ---- */

static char reports[1 << 16];
static atomic_size_t report_bytes, report_count;
static atomic_flag writing = ATOMIC_FLAG_INIT;

void sim_report(const char *format, ...) {
    char line[2048];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    if (length > (int)sizeof line - 2)
        length = sizeof line - 2;
    line[length++] = '\n';

    while (atomic_flag_test_and_set(&writing)) {
    }
    size_t used = report_bytes;
    if (used + (size_t)length < sizeof reports) {
        memcpy(reports + used, line, (size_t)length);
        reports[used + (size_t)length] = 0;
        report_bytes = used + (size_t)length;
    }
    report_count++;
    atomic_flag_clear(&writing);
}

const char *metal_sim_reports(void) {
    static __thread char copy[sizeof reports];
    memcpy(copy, reports, report_bytes + 1);
    return copy;
}

size_t metal_sim_report_count(void) {
    return report_count;
}

/* ---- faults ---- */

static size_t fault_at, calls;
static bool fault_silent;
static const char *fault_hit = "";

bool sim_fault(const char *call) {
    pthread_mutex_lock(&lock);
    bool hit = ++calls == fault_at;
    if (hit)
        fault_hit = call;
    pthread_mutex_unlock(&lock);
    return hit;
}

bool sim_fault_is_silent(void) {
    return fault_silent;
}

void metal_sim_fail_call(size_t n, bool silent) {
    pthread_mutex_lock(&lock);
    fault_at = n;
    fault_silent = silent;
    fault_hit = "";
    calls = 0;
    pthread_mutex_unlock(&lock);
}

size_t metal_sim_call_count(void) {
    return calls;
}
const char *metal_sim_failed_call(void) {
    return fault_hit;
}

/* ---- live objects ---- */

static struct {
    const char *name;
    long count;
} live[32];

static long *live_count(const char *class_name) {
    size_t i = 0;
    while (live[i].name && strcmp(live[i].name, class_name))
        i++;
    live[i].name = class_name;
    return &live[i].count;
}

void sim_object_created(const char *class_name) {
    pthread_mutex_lock(&lock);
    ++*live_count(class_name);
    pthread_mutex_unlock(&lock);
}

void sim_object_destroyed(const char *class_name) {
    pthread_mutex_lock(&lock);
    --*live_count(class_name);
    pthread_mutex_unlock(&lock);
}

long metal_sim_live_objects(void) {
    long count = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; live[i].name; i++)
        count += live[i].count;
    pthread_mutex_unlock(&lock);
    return count;
}

void metal_sim_start_counting_objects(void) {
    pthread_mutex_lock(&lock);
    for (size_t i = 0; live[i].name; i++)
        live[i].count = 0;
    pthread_mutex_unlock(&lock);
}

const char *metal_sim_live_objects_text(void) {
    static __thread char text[1024];
    size_t used = 0;
    text[0] = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; live[i].name; i++)
        if (live[i].count && used < sizeof text)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%ld %s", used ? ", " : "",
                                     live[i].count, live[i].name);
    pthread_mutex_unlock(&lock);
    return text;
}

size_t metal_sim_in_flight(void) {
    return sim_counts.in_flight;
}

/* ---- forbidden zones ---- */

static struct sim_zone *zones;
static size_t zone_count;

static int compare_zones(const void *left, const void *right) {
    const struct sim_zone *a = left, *b = right;
    return (a->start > b->start) - (a->start < b->start);
}

static void add_zone(uintptr_t start, uintptr_t end) {
    zones = realloc(zones, (zone_count + 1) * sizeof *zones);
    zones[zone_count++] = (struct sim_zone){start, end};
    qsort(zones, zone_count, sizeof *zones, compare_zones);
}

void metal_sim_forbid(const void *start, size_t length) {
    pthread_mutex_lock(&lock);
    add_zone((uintptr_t)start, (uintptr_t)start + length);
    pthread_mutex_unlock(&lock);
}

void metal_sim_set_padding(const void *start, size_t used, size_t length) {
    uintptr_t first = (uintptr_t)start, end = first + length;
    size_t kept = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < zone_count; i++)
        if (zones[i].end <= first || zones[i].start >= end)
            zones[kept++] = zones[i];
    zone_count = kept;
    if (used < length)
        add_zone(first + used, end);
    pthread_mutex_unlock(&lock);
}

size_t sim_forbidden_zones(struct sim_zone **copy) {
    pthread_mutex_lock(&lock);
    size_t count = zone_count;
    *copy = malloc((count + 1) * sizeof **copy);
    if (count)
        memcpy(*copy, zones, count * sizeof *zones);
    pthread_mutex_unlock(&lock);
    return count;
}

/* ---- settings and counts ---- */

static char shader_cache[4096] = METAL_SIM_CACHE;

const char *sim_shader_cache(void) {
    return shader_cache;
}

void metal_sim_set_shader_cache(const char *directory) {
    snprintf(shader_cache, sizeof shader_cache, "%s", directory);
}

void metal_sim_set_reverse(bool reverse) {
    sim_settings.reverse = reverse;
}
void metal_sim_set_sampled_threadgroups(size_t n) {
    sim_settings.sampled_threadgroups = n;
}
void metal_sim_set_status_reads(unsigned reads) {
    sim_settings.status_reads = reads;
}
void metal_sim_set_watchdog(unsigned milliseconds) {
    sim_settings.watchdog_ms = milliseconds;
}
void metal_sim_set_device_present(bool present) {
    sim_settings.device_present = present;
}
void metal_sim_set_apple_family(int family) {
    sim_settings.apple_family = family;
}
void metal_sim_set_max_buffer_length(size_t bytes) {
    sim_settings.max_buffer_length = bytes;
}

void metal_sim_set_system_version(int major, int minor) {
    sim_settings.system_major = major;
    sim_settings.system_minor = minor;
}

void metal_sim_set_max_total_threads_per_threadgroup(size_t threads) {
    sim_settings.max_total_threads = threads < SIM_MAX_THREADS ? threads : SIM_MAX_THREADS;
}

size_t metal_sim_command_buffers(void) {
    return sim_counts.command_buffers;
}

size_t metal_sim_dispatches(void) {
    return sim_counts.dispatches;
}
size_t metal_sim_threadgroups(void) {
    return sim_counts.threadgroups;
}
size_t metal_sim_memory_accesses(void) {
    return sim_counts.accesses;
}
size_t metal_sim_fast_math_libraries(void) {
    return sim_counts.fast_math_libraries;
}
size_t metal_sim_compilations(void) {
    return sim_counts.compilations;
}

void metal_sim_reset(void) {
    metal_sim_fail_call(0, false);
    sim_flight_forget();
    pthread_mutex_lock(&lock);
    sim_settings = defaults;
    report_bytes = report_count = 0;
    reports[0] = 0;
    zone_count = 0;
    sim_counts.command_buffers = sim_counts.dispatches = 0;
    sim_counts.threadgroups = sim_counts.accesses = 0;
    sim_counts.fast_math_libraries = sim_counts.compilations = sim_counts.in_flight = 0;
    pthread_mutex_unlock(&lock);
}
