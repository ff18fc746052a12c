// The list of devices and the default among them.

#include "device.h"
#include "status.h"

#include <stdatomic.h>
#include <string.h>

static mo_device *const devices[] = {&mo_cpu_device};
static const size_t n_devices = sizeof devices / sizeof *devices;

// NULL: the first of the list.
static _Atomic(mo_device *) chosen_default;

size_t mo_device_count(void) {
    return n_devices;
}

mo_device *mo_device_at(size_t index) {
    return index < n_devices ? devices[index] : NULL;
}

mo_status mo_device_find(const char *name, mo_device **device) {
    for (size_t i = 0; i < n_devices; i++)
        if (strcmp(devices[i]->name, name) == 0) {
            *device = devices[i];
            return MO_OK;
        }
    char names[256] = "";
    for (size_t i = 0; i < n_devices; i++) {
        if (i > 0)
            strncat(names, ", ", sizeof names - strlen(names) - 1);
        strncat(names, devices[i]->name, sizeof names - strlen(names) - 1);
    }
    return mo_fail(MO_DEVICE_ERROR, "there is no device '%.64s' here; choose from: %s", name,
                   names);
}

const char *mo_device_name(const mo_device *device) {
    return device->name;
}

void mo_device_describe(const mo_device *device, char *text, size_t size) {
    device->describe(text, size);
}

mo_device *mo_default_device(void) {
    mo_device *device = atomic_load(&chosen_default);
    return device ? device : devices[0];
}

void mo_set_default_device(mo_device *device) {
    atomic_store(&chosen_default, device);
}
