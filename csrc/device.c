// The list of devices and the default among them.

#include "device.h"
#include "status.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

// All that this build knows, the preferred one first.
static mo_device *const known[] = {
#if defined(MLXOPS_METAL)
    &mo_metal_device,
#elif defined(__linux__)
    &mo_cuda_device,
#endif
    &mo_cpu_device,
};

#define N_KNOWN (sizeof known / sizeof *known)

// What has been found out about each. To ask a GPU's driver can take a tenth of a second, so that
// it is asked only when the device, or whatever comes after it, is wanted.
static pthread_mutex_t probing = PTHREAD_MUTEX_INITIALIZER;
static struct {
    _Atomic(enum {UNKNOWN, USABLE, MISSING}) state;
    char reason[512]; // why it is missing
} found[N_KNOWN];

// NULL: the first of the list.
static _Atomic(mo_device *) chosen_default;

static atomic_bool in_forked_child;

static _Atomic(bool (*)(void)) interrupt_check;

// Called with the lock held.
static void probe(size_t i) {
    char *reason = found[i].reason;
    const bool usable = !known[i]->probe || known[i]->probe(reason, sizeof found[i].reason);
    atomic_store(&found[i].state, usable ? USABLE : MISSING);
}

static bool is_usable(size_t i) {
    if (atomic_load(&found[i].state) == UNKNOWN) {
        pthread_mutex_lock(&probing);
        if (atomic_load(&found[i].state) == UNKNOWN)
            probe(i);
        pthread_mutex_unlock(&probing);
    }
    return atomic_load(&found[i].state) == USABLE;
}

size_t mo_device_count(void) {
    size_t n = 0;
    for (size_t i = 0; i < N_KNOWN; i++)
        n += is_usable(i);
    return n;
}

mo_device *mo_device_at(size_t index) {
    for (size_t i = 0; i < N_KNOWN; i++)
        if (is_usable(i) && index-- == 0)
            return known[i];
    return NULL;
}

bool mo_device_missing(size_t index, const char **name, const char **reason) {
    for (size_t i = 0; i < N_KNOWN; i++)
        if (!is_usable(i) && index-- == 0) {
            *name = known[i]->name;
            *reason = found[i].reason;
            return true;
        }
    return false;
}

static mo_status no_such_device(const char *name) {
    char names[256] = "";
    size_t used = 0;
    for (size_t i = 0; i < N_KNOWN && used < sizeof names; i++)
        if (is_usable(i))
            used += (size_t)snprintf(names + used, sizeof names - used, used == 0 ? "%s" : ", %s",
                                     known[i]->name);
    return mo_fail(MO_DEVICE_ERROR, "there is no device '%.64s' here; choose from: %s", name,
                   names);
}

mo_status mo_device_find(const char *name, mo_device **device) {
    for (size_t i = 0; i < N_KNOWN; i++) {
        if (strcmp(known[i]->name, name) != 0)
            continue;
        if (!is_usable(i))
            return mo_fail(MO_DEVICE_ERROR, "device '%s' cannot be used: %s", name,
                           found[i].reason);
        *device = known[i];
        return MO_OK;
    }
    return no_such_device(name);
}

void mo_trim_devices(void) {
    for (size_t i = 0; i < N_KNOWN; i++)
        if (atomic_load(&found[i].state) == USABLE && known[i]->trim)
            known[i]->trim();
}

const char *mo_device_name(const mo_device *device) {
    return device->name;
}

void mo_device_describe(const mo_device *device, char *text, size_t size) {
    device->describe(text, size);
}

mo_device *mo_default_device(void) {
    if (mo_in_forked_child())
        return &mo_cpu_device;
    mo_device *device = atomic_load(&chosen_default);
    return device ? device : mo_device_at(0);
}

void mo_set_default_device(mo_device *device) {
    atomic_store(&chosen_default, device);
}

void mo_set_interrupt_check(bool (*interrupted)(void)) {
    atomic_store(&interrupt_check, interrupted);
}

bool mo_interrupted(void) {
    bool (*interrupted)(void) = atomic_load(&interrupt_check);
    return interrupted && interrupted();
}

bool mo_in_forked_child(void) {
    return atomic_load(&in_forked_child);
}

// The lock must be free in a forked child.

static void before_fork(void) {
    pthread_mutex_lock(&probing);
}

static void enter_parent(void) {
    pthread_mutex_unlock(&probing);
}

static void enter_child(void) {
    pthread_mutex_unlock(&probing);
    atomic_store(&in_forked_child, true);
}

__attribute__((constructor)) static void survive_fork(void) {
    pthread_atfork(before_fork, enter_parent, enter_child);
}
