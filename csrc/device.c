// The list of devices and the default among them.

#include "device.h"
#include "status.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

// All that this build knows, the preferred one first.
static mo_device *const known[] = {
#ifdef MLXOPS_METAL
    &mo_metal_device,
#endif
    &mo_cpu_device,
};

#define N_KNOWN (sizeof known / sizeof *known)

static pthread_once_t probed = PTHREAD_ONCE_INIT;
static mo_device *devices[N_KNOWN];
static size_t n_devices;
static struct {
    const char *name;
    char reason[512];
} missing[N_KNOWN];
static size_t n_missing;

// NULL: the first of the list.
static _Atomic(mo_device *) chosen_default;

static atomic_bool in_forked_child;

static _Atomic(bool (*)(void)) interrupt_check;

static void probe(void) {
    for (size_t i = 0; i < N_KNOWN; i++) {
        char *reason = missing[n_missing].reason;
        if (!known[i]->probe || known[i]->probe(reason, sizeof missing[n_missing].reason))
            devices[n_devices++] = known[i];
        else
            missing[n_missing++].name = known[i]->name;
    }
}

size_t mo_device_count(void) {
    pthread_once(&probed, probe);
    return n_devices;
}

mo_device *mo_device_at(size_t index) {
    return index < mo_device_count() ? devices[index] : NULL;
}

bool mo_device_missing(size_t index, const char **name, const char **reason) {
    pthread_once(&probed, probe);
    if (index >= n_missing)
        return false;
    *name = missing[index].name;
    *reason = missing[index].reason;
    return true;
}

static mo_status no_such_device(const char *name) {
    for (size_t i = 0; i < n_missing; i++)
        if (strcmp(missing[i].name, name) == 0)
            return mo_fail(MO_DEVICE_ERROR, "device '%s' cannot be used: %s", name,
                           missing[i].reason);
    char names[256] = "";
    size_t used = 0;
    for (size_t i = 0; i < n_devices && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, i == 0 ? "%s" : ", %s",
                                 devices[i]->name);
    return mo_fail(MO_DEVICE_ERROR, "there is no device '%.64s' here; choose from: %s", name,
                   names);
}

mo_status mo_device_find(const char *name, mo_device **device) {
    for (size_t i = 0; i < mo_device_count(); i++)
        if (strcmp(devices[i]->name, name) == 0) {
            *device = devices[i];
            return MO_OK;
        }
    return no_such_device(name);
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

static void enter_child(void) {
    atomic_store(&in_forked_child, true);
}

__attribute__((constructor)) static void survive_fork(void) {
    pthread_atfork(NULL, NULL, enter_child);
}
