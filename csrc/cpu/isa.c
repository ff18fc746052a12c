#include "cpu/isa.h"
#include "status.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The kernels of this build, the best first. The last one runs everywhere.
static const mo_isa *const isas[] = {
#ifdef __x86_64__
    &mo_isa_avx512,
    &mo_isa_avx2,
#endif
#ifdef __aarch64__
    &mo_isa_neon,
#endif
    &mo_isa_scalar,
};

#define N_ISAS (sizeof isas / sizeof *isas)

static const mo_isa *best_isa(void) {
    size_t i = 0;
    while (i < N_ISAS - 1 && !isas[i]->available())
        i++;
    return isas[i];
}

// What MLXOPS_CPU_ISA asks for; NULL if it is not set, or cannot be had.
static const mo_isa *asked_for(void) {
    const char *name = getenv("MLXOPS_CPU_ISA");
    for (size_t i = 0; name && i < N_ISAS; i++)
        if (strcmp(isas[i]->name, name) == 0 && isas[i]->available())
            return isas[i];
    return NULL;
}

const mo_isa *mo_chosen_isa(void) {
    static _Atomic(const mo_isa *) chosen; // every thread that is first finds the same
    const mo_isa *isa = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (!isa) {
        isa = asked_for();
        if (!isa)
            isa = best_isa();
        atomic_store_explicit(&chosen, isa, memory_order_relaxed);
    }
    return isa;
}

static bool is_name_of_isa(const char *name) {
    static const char *const names[] = {"scalar", "avx2", "avx512", "neon"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

// The names of those that can be had here, separated by commas.
static void list_available(char *text, size_t size) {
    size_t length = 0;
    for (size_t i = N_ISAS; i-- > 0;)
        if (isas[i]->available() && length < size)
            length += (size_t)snprintf(text + length, size - length, "%s%s", length ? ", " : "",
                                       isas[i]->name);
}

mo_status mo_check_isa_environment(void) {
    const char *name = getenv("MLXOPS_CPU_ISA");
    if (!name || !*name || asked_for())
        return MO_OK;
    char available[64];
    list_available(available, sizeof available);
    return mo_fail(MO_INVALID_VALUE,
                   "MLXOPS_CPU_ISA is '%.64s', which %s; it can be %s here, and %s is used", name,
                   is_name_of_isa(name) ? "this processor does not have"
                                        : "is no instruction set that there are kernels for",
                   available, best_isa()->name);
}
