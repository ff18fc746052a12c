/* The memory behind buffers. While a committed command buffer uses it, its pages are protected, so
 * that the CPU's access is seen: none may write, and none may read what the GPU writes. */
#include "sim.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_memory *all;
static bool gpu_runs;

enum { NOTHING_BEHIND = 33 }; /* 8 GiB of addresses for each buffer */

static size_t whole_pages(size_t length) {
    return (length + 4095) & ~(size_t)4095;
}

/* ---- protection ---- */

static int wanted_protection(const struct sim_memory *memory) {
    if (gpu_runs || memory->touched || memory->protection < 0)
        return memory->protection;
    if (memory->writers)
        return PROT_NONE;
    return memory->readers ? memory->protection & ~PROT_WRITE : memory->protection;
}

/* Sets the pages as this memory, and all that overlap it, want them. */
static void protect(struct sim_memory *memory) {
    if (memory->protection < 0 || !sim_memory_is_mapped(memory))
        return;
    int protection = wanted_protection(memory);
    for (struct sim_memory *other = all; other; other = other->next)
        if (other != memory && other->protection >= 0 &&
            other->base < memory->base + memory->length &&
            memory->base < other->base + other->length)
            protection &= wanted_protection(other);
    mprotect(memory->base, whole_pages(memory->length), protection);
}

void sim_flight_begin(struct sim_memory *memory, bool writes) {
    pthread_mutex_lock(&lock);
    *(writes ? &memory->writers : &memory->readers) += 1;
    memory->touched = false;
    protect(memory);
    pthread_mutex_unlock(&lock);
}

void sim_flight_end(struct sim_memory *memory, bool writes) {
    pthread_mutex_lock(&lock);
    int *users = writes ? &memory->writers : &memory->readers;
    *users -= *users > 0; /* it may have been forgotten */
    protect(memory);
    pthread_mutex_unlock(&lock);
}

void sim_flight_forget(void) {
    pthread_mutex_lock(&lock);
    for (struct sim_memory *memory = all; memory; memory = memory->next)
        if (memory->readers || memory->writers) {
            memory->readers = memory->writers = 0;
            protect(memory);
        }
    pthread_mutex_unlock(&lock);
}

static void protect_all(bool runs) {
    pthread_mutex_lock(&lock);
    gpu_runs = runs;
    for (struct sim_memory *memory = all; memory; memory = memory->next)
        if (memory->readers || memory->writers)
            protect(memory);
    pthread_mutex_unlock(&lock);
}

void sim_flight_open(void) {
    protect_all(true);
}
void sim_flight_close(void) {
    protect_all(false);
}

/* ---- the CPU's access ---- */

static struct sigaction previous;

/* Reports the access, lets it happen, and goes on. */
static void touched(int signal, siginfo_t *info, void *context) {
    char *address = info->si_addr;
    for (struct sim_memory *memory = all; memory; memory = memory->next) {
        if (address < memory->base || address >= memory->base + whole_pages(memory->length))
            continue;
        if (!memory->touched && (memory->readers || memory->writers)) {
            sim_report(
                "the CPU touched byte %zu of a buffer of %zu bytes while a command buffer %s it",
                (size_t)(address - memory->base), memory->length,
                memory->writers ? "writes" : "reads");
            for (struct sim_memory *other = all; other; other = other->next)
                if (address >= other->base && address < other->base + whole_pages(other->length))
                    other->touched = true;
            mprotect(memory->base, whole_pages(memory->length), memory->protection);
            return;
        }
    }
    if ((previous.sa_flags & SA_SIGINFO) && previous.sa_sigaction)
        previous.sa_sigaction(signal, info, context);
    else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN)
        previous.sa_handler(signal);
    else
        sigaction(signal, &(struct sigaction){.sa_handler = SIG_DFL}, NULL); /* it happens again */
}

static void install_handler(void) {
    struct sigaction action = {.sa_sigaction = touched, .sa_flags = SA_SIGINFO | SA_ONSTACK}, now;
    sigaction(SIGSEGV, NULL, &now);
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == touched)
        return;
    previous = now;
    sigaction(SIGSEGV, &action, NULL);
}

/* ---- memory ---- */

static struct sim_memory *add(struct sim_memory memory) {
    struct sim_memory *added = malloc(sizeof *added);
    install_handler();
    *added = memory;
    pthread_mutex_lock(&lock);
    added->next = all;
    all = added;
    pthread_mutex_unlock(&lock);
    return added;
}

struct sim_memory *sim_memory_new(size_t length) {
    size_t mapped = ((size_t)1 << NOTHING_BEHIND) + whole_pages(length);
    char *base = mmap(NULL, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED || mprotect(base, whole_pages(length), PROT_READ | PROT_WRITE))
        return NULL;
    memset(base, SIM_FILL, length);
    return add((struct sim_memory){.base = base,
                                   .length = length,
                                   .mapped = mapped,
                                   .owned = true,
                                   .protection = PROT_READ | PROT_WRITE});
}

/* What the kernel says of the pages: their protection, -1 where it is mixed, -2 where some are
 * missing. */
static int protection_of(const char *base, size_t length) {
    FILE *maps = fopen("/proc/self/maps", "r");
    uintptr_t next = (uintptr_t)base, end = next + length;
    int protection = -2;
    char line[512], mode[8];
    unsigned long first, last;
    while (maps && next < end && fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx %7s", &first, &last, mode) != 3 || last <= next)
            continue;
        if (first > next)
            break;
        int here = (mode[0] == 'r' ? PROT_READ : 0) | (mode[1] == 'w' ? PROT_WRITE : 0);
        protection = protection == -2 || protection == here ? here : -1;
        next = last;
    }
    if (maps)
        fclose(maps);
    return next < end ? -2 : protection;
}

struct sim_memory *sim_memory_wrap(void *base, size_t length) {
    pthread_mutex_lock(&lock); /* what is in flight at the same place hides the real protection */
    int protection = protection_of(base, length);
    for (struct sim_memory *other = all; other; other = other->next)
        if ((other->readers || other->writers) && other->base < (char *)base + length &&
            (char *)base < other->base + other->length)
            protection = other->protection;
    pthread_mutex_unlock(&lock);
    if (protection == -2)
        return NULL;
    return add((struct sim_memory){.base = base, .length = length, .protection = protection});
}

void sim_memory_free(struct sim_memory *memory) {
    pthread_mutex_lock(&lock);
    struct sim_memory **link = &all;
    while (*link != memory)
        link = &(*link)->next;
    *link = memory->next;
    pthread_mutex_unlock(&lock);
    if (memory->owned)
        munmap(memory->base, memory->mapped);
    else if (memory->protection >= 0 && (memory->readers || memory->writers))
        mprotect(memory->base, whole_pages(memory->length), memory->protection);
    free(memory);
}

size_t sim_memory_total(void) {
    size_t total = 0;
    pthread_mutex_lock(&lock);
    for (const struct sim_memory *memory = all; memory; memory = memory->next)
        total += memory->length;
    pthread_mutex_unlock(&lock);
    return total;
}

bool sim_memory_is_mapped(const struct sim_memory *memory) {
    return memory->owned || !msync((void *)memory->base, memory->length, MS_ASYNC) ||
           errno != ENOMEM;
}
