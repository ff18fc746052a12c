// The CPU device: runs the native kernel of each dispatch, at the commit.

#include "cpu/interrupt.h"
#include "cpu/isa.h"
#include "device.h"
#include "encoder.h"
#include "status.h"

#include <stdio.h>
#include <string.h>

#ifdef __APPLE__
#include <sys/sysctl.h>
#endif
#include <sys/utsname.h>

// The processor's name for itself, false if it has none.
static bool processor_name(char *text, size_t size) {
#ifdef __APPLE__
    return sysctlbyname("machdep.cpu.brand_string", text, &size, NULL, 0) == 0;
#else
    FILE *file = fopen("/proc/cpuinfo", "re");
    if (!file)
        return false;
    char line[256];
    bool found = false;
    while (!found && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (!colon || strncmp(line, "model name", 10) != 0)
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(text, size, "%s", colon + 1 + strspn(colon + 1, " "));
        found = true;
    }
    fclose(file);
    return found;
#endif
}

static void describe(char *text, size_t size) {
    char name[256];
    if (!processor_name(name, sizeof name)) {
        struct utsname system;
        snprintf(name, sizeof name, "%s",
                 uname(&system) == 0 ? system.machine : "unknown processor");
    }
    snprintf(text, size, "%s, %s", name, mo_chosen_isa()->name);
}

static mo_status make_pipeline(const mo_kernel *kernel, const mo_function_constant *constants,
                               size_t n_constants, void **state) {
    (void)constants; // they only repeat what the params say
    (void)n_constants;
    *state = NULL;
    if (!kernel->native)
        return mo_fail(MO_DEVICE_ERROR, "kernel '%s' has no native function for device 'cpu'",
                       kernel->name);
    return MO_OK;
}

static mo_status commit(const mo_dispatch *dispatches, size_t n, void **in_flight) {
    *in_flight = NULL;
    mo_begin_polling();
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && mo_poll_interrupt())
            return mo_fail(MO_INTERRUPTED, "interrupted");
        const mo_status status = dispatches[i].pipeline->kernel->native(&dispatches[i]);
        if (status != MO_OK)
            return status;
    }
    return MO_OK;
}

static mo_status finish(void *in_flight, bool discard) {
    (void)in_flight, (void)discard;
    return MO_OK;
}

mo_device mo_cpu_device = {
    .name = "cpu",
    .describe = describe,
    .make_pipeline = make_pipeline,
    .commit = commit,
    .finish = finish,
};
