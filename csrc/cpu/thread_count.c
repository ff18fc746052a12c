// How many threads the environment, the affinity and the cgroup leave to the process.

#include "cpu/thread_count.h"
#include "mlxops.h"
#include "status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef __linux__

#include <sched.h>

// Where the kernel tells of cgroups. (The tests tell of others.)
#ifndef CGROUP_ROOT
#define CGROUP_ROOT "/sys/fs/cgroup"
#define CGROUPS_OF_PROCESS "/proc/self/cgroup"
#endif

static int affinity(void) {
    // The kernel's mask can be larger than a cpu_set_t: ask with ever larger ones.
    for (int cpus = CPU_SETSIZE; cpus <= 1 << 20; cpus *= 4) {
        cpu_set_t *set = CPU_ALLOC((size_t)cpus);
        if (!set)
            break;
        const size_t size = CPU_ALLOC_SIZE((size_t)cpus);
        const int failed = sched_getaffinity(0, size, set);
        const int n = failed ? 0 : CPU_COUNT_S(size, set);
        const bool too_small = failed && errno == EINVAL;
        CPU_FREE(set);
        if (!too_small)
            return n;
    }
    return 0;
}

// Reads the first line of a file; false if there is none.
static bool read_line(const char *path, char *line, size_t size) {
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    const bool got = fgets(line, (int)size, file) != NULL;
    fclose(file);
    return got;
}

// The processors of a quota, a started one counted as whole; 0: no quota.
static int processors(long long quota, long long period) {
    if (quota <= 0 || period <= 0 || quota / period >= MO_MAX_THREADS)
        return 0;
    return (int)((quota + period - 1) / period);
}

// Version 2: "max 100000" or "quota period" in one file.
static int quota_v2(const char *directory) {
    char path[4352], line[128];
    long long quota, period;
    snprintf(path, sizeof path, CGROUP_ROOT "%s/cpu.max", directory);
    if (!read_line(path, line, sizeof line) || sscanf(line, "%lld %lld", &quota, &period) != 2)
        return 0;
    return processors(quota, period);
}

// Version 1: two files, the quota -1 where there is none.
static int quota_v1(const char *directory) {
    char path[4352], quota[64], period[64];
    snprintf(path, sizeof path, CGROUP_ROOT "/cpu%s/cpu.cfs_quota_us", directory);
    if (!read_line(path, quota, sizeof quota))
        return 0;
    snprintf(path, sizeof path, CGROUP_ROOT "/cpu%s/cpu.cfs_period_us", directory);
    if (!read_line(path, period, sizeof period))
        return 0;
    return processors(atoll(quota), atoll(period));
}

// The smallest quota of a group and the groups that it is in. directory is shortened to "".
static int smallest_quota(char *directory, int (*quota)(const char *)) {
    int smallest = 0;
    for (;;) {
        const int here = quota(directory);
        if (here > 0 && (smallest == 0 || here < smallest))
            smallest = here;
        char *last = strrchr(directory, '/');
        if (!last)
            return smallest;
        *last = '\0';
    }
}

// Lines of /proc/self/cgroup: "0::/path" for version 2, "4:cpu,cpuacct:/path" for version 1.
static int cgroup_quota(void) {
    FILE *file = fopen(CGROUPS_OF_PROCESS, "re");
    if (!file)
        return 0;
    int smallest = 0;
    char line[4224];
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *directory = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!directory)
            continue;
        *directory++ = '\0';
        int quota = 0;
        if (controllers[1] == '\0')
            quota = smallest_quota(directory, quota_v2);
        else if (strstr(controllers, ":cpu,") || strstr(controllers, ",cpu,") ||
                 strcmp(controllers, ":cpu") == 0)
            quota = smallest_quota(directory, quota_v1);
        if (quota > 0 && (smallest == 0 || quota < smallest))
            smallest = quota;
    }
    fclose(file);
    return smallest;
}

#else

static int affinity(void) {
    return 0;
}

static int cgroup_quota(void) {
    return 0;
}

#endif

// MLXOPS_NUM_THREADS: a positive number, 0 if it is not set, -1 if it is something else.
static long environment_num_threads(void) {
    const char *text = getenv("MLXOPS_NUM_THREADS");
    if (!text || !*text)
        return 0;
    char *end;
    errno = 0;
    const long n = strtol(text, &end, 10);
    return *end == '\0' && errno == 0 && n >= 1 ? n : -1;
}

mo_status mo_check_num_threads_environment(void) {
    if (environment_num_threads() < 0)
        return mo_fail(MO_INVALID_VALUE,
                       "MLXOPS_NUM_THREADS is '%.64s', which is no number of "
                       "threads; it is ignored",
                       getenv("MLXOPS_NUM_THREADS"));
    return MO_OK;
}

int mo_initial_num_threads(void) {
    long n = environment_num_threads();
    if (n < 1) {
        n = affinity();
        if (n < 1)
            n = sysconf(_SC_NPROCESSORS_ONLN);
        const int quota = cgroup_quota();
        if (quota > 0 && quota < n)
            n = quota;
    }
    if (n < 1)
        n = 1;
    return n < MO_MAX_THREADS ? (int)n : MO_MAX_THREADS;
}
