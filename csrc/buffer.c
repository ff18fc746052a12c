// Buffers over whole pages of host memory, and the cache of freed ones.
//
// Fresh pages cost a fault each when they are first written, which for a large result takes longer
// than computing it. So the memory of a freed buffer is kept for the next one of its size class.

#include "buffer.h"
#include "device.h"
#include "status.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

// Size classes: 1 to 8 pages, then 8 classes for each doubling, so that at most an eighth is
// wasted.
#define CLASSES_PER_DOUBLING 8
#define SIZE_CLASSES (CLASSES_PER_DOUBLING * 46)

// The tests look for kernels that go beyond a buffer's size, into the rest of its pages.
#ifndef MO_BUFFER_ALLOCATED
#define MO_BUFFER_ALLOCATED(contents, size, capacity)
#endif

#define CACHE_LIMIT ((size_t)1 << 30)

// Devices other than the CPU that can wrap a buffer in one process.
#define MAX_WRAPPERS 2

typedef struct wrapping {
    mo_device *device; // NULL: free
    void *wrapper;
} wrapping;

struct mo_buffer {
    atomic_size_t references;
    unsigned char *contents;
    size_t size;
    int size_class; // -1: borrowed memory
    bool has_pages;
    bool frozen;
    wrapping wrappings[MAX_WRAPPERS];
    struct mo_buffer *next; // in the cache
};

static atomic_ullong copied_in, copied_out;

static struct {
    pthread_mutex_t lock;
    mo_buffer *freed[SIZE_CLASSES];
    size_t size;
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER};

static size_t class_bytes(int size_class) {
    const int doubling = size_class / CLASSES_PER_DOUBLING;
    const size_t step = (size_t)(size_class % CLASSES_PER_DOUBLING);
    if (doubling == 0)
        return (step + 1) * MO_PAGE;
    return (CLASSES_PER_DOUBLING + step + 1) * (MO_PAGE << (doubling - 1));
}

// The smallest class that holds size bytes, -1 if there is none.
static int class_of(size_t size) {
    for (int doubling = 0; doubling < SIZE_CLASSES / CLASSES_PER_DOUBLING; doubling++) {
        const int last = (doubling + 1) * CLASSES_PER_DOUBLING - 1;
        if (size > class_bytes(last))
            continue;
        int size_class = last;
        while (size_class > 0 && class_bytes(size_class - 1) >= size)
            size_class--;
        return size_class;
    }
    return -1;
}

// Whether all devices have let go of the memory.
static bool unwrap(mo_buffer *buffer) {
    bool is_free = true;
    for (int i = 0; i < MAX_WRAPPERS && buffer->wrappings[i].device; i++)
        is_free &= buffer->wrappings[i].device->unwrap(buffer->wrappings[i].wrapper);
    return is_free;
}

static void unmap(mo_buffer *buffer) {
    if (unwrap(buffer)) { // else a GPU may still write there, whatever the memory would become
        MO_BUFFER_ALLOCATED(buffer->contents, class_bytes(buffer->size_class),
                            class_bytes(buffer->size_class)); // it may become anyone's
        munmap(buffer->contents, class_bytes(buffer->size_class));
    }
    free(buffer);
}

// The contents are about to go.
static void thaw(mo_buffer *buffer) {
    for (int i = 0; i < MAX_WRAPPERS && buffer->wrappings[i].device; i++)
        if (buffer->wrappings[i].device->forget)
            buffer->wrappings[i].device->forget(buffer->wrappings[i].wrapper);
    buffer->frozen = false;
}

static mo_buffer *take_from_cache(int size_class) {
    pthread_mutex_lock(&cache.lock);
    mo_buffer *buffer = cache.freed[size_class];
    if (buffer) {
        cache.freed[size_class] = buffer->next;
        cache.size -= class_bytes(size_class);
    }
    pthread_mutex_unlock(&cache.lock);
    return buffer;
}

static bool put_in_cache(mo_buffer *buffer) {
    const size_t bytes = class_bytes(buffer->size_class);
    pthread_mutex_lock(&cache.lock);
    const bool fits = bytes <= CACHE_LIMIT - cache.size;
    if (fits) {
        buffer->next = cache.freed[buffer->size_class];
        cache.freed[buffer->size_class] = buffer;
        cache.size += bytes;
    }
    pthread_mutex_unlock(&cache.lock);
    return fits;
}

size_t mo_buffer_cache_limit(void) {
    return CACHE_LIMIT;
}

size_t mo_buffer_cache_size(void) {
    pthread_mutex_lock(&cache.lock);
    const size_t size = cache.size;
    pthread_mutex_unlock(&cache.lock);
    return size;
}

static void clear_cache(void) {
    for (int size_class = 0; size_class < SIZE_CLASSES; size_class++)
        for (mo_buffer *buffer; (buffer = take_from_cache(size_class));)
            unmap(buffer);
}

void mo_buffer_cache_clear(void) {
    clear_cache();
    mo_trim_devices();
}

// Memory that begins at a multiple of MO_PAGE. mmap only promises one of the system's own pages, so
// a little more is mapped and the ends are given back.
static void *map_pages(size_t bytes) {
    unsigned char *pages =
        mmap(NULL, bytes + MO_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        return NULL;
    const size_t before = -(uintptr_t)pages % MO_PAGE;
    if (before > 0)
        munmap(pages, before);
    munmap(pages + before + bytes, MO_PAGE - before);
    return pages + before;
}

// A buffer of one reference with everything but its size, or NULL.
static mo_buffer *map_buffer(int size_class) {
    mo_buffer *buffer = calloc(1, sizeof *buffer);
    if (!buffer)
        return NULL;
    const size_t bytes = class_bytes(size_class);
    buffer->contents = map_pages(bytes);
    if (!buffer->contents) {
        clear_cache();
        buffer->contents = map_pages(bytes);
    }
    if (!buffer->contents) {
        free(buffer);
        return NULL;
    }
    buffer->size_class = size_class;
    buffer->has_pages = true;
    return buffer;
}

mo_status mo_buffer_alloc(size_t size, mo_buffer **result) {
    const int size_class = class_of(size);
    if (size_class < 0)
        return mo_fail_memory(size);
    mo_buffer *buffer = take_from_cache(size_class);
    if (!buffer)
        buffer = map_buffer(size_class);
    if (!buffer)
        return mo_fail_memory(size);
    atomic_init(&buffer->references, 1);
    buffer->size = size;
    MO_BUFFER_ALLOCATED(buffer->contents, size, class_bytes(size_class));
    *result = buffer;
    return MO_OK;
}

mo_status mo_buffer_borrow(const void *memory, size_t size, mo_buffer **result) {
    mo_buffer *buffer = calloc(1, sizeof *buffer);
    if (!buffer)
        return mo_fail_memory(sizeof *buffer);
    atomic_init(&buffer->references, 1);
    buffer->contents = (unsigned char *)memory;
    buffer->size = size;
    buffer->size_class = -1;
    *result = buffer;
    return MO_OK;
}

mo_status mo_buffer_borrow_pages(const void *memory, size_t size, mo_buffer **result) {
    const mo_status status = mo_buffer_borrow(memory, size, result);
    if (status == MO_OK)
        (*result)->has_pages = true;
    return status;
}

void mo_buffer_freeze(mo_buffer *buffer) {
    buffer->frozen = true;
}

mo_buffer *mo_buffer_retain(mo_buffer *buffer) {
    atomic_fetch_add_explicit(&buffer->references, 1, memory_order_relaxed);
    return buffer;
}

void mo_buffer_release(mo_buffer *buffer) {
    if (!buffer)
        return;
    if (atomic_fetch_sub_explicit(&buffer->references, 1, memory_order_acq_rel) != 1)
        return;
    if (buffer->frozen)
        thaw(buffer);
    if (buffer->size_class < 0) {
        unwrap(buffer);
        free(buffer);
    } else if (class_bytes(buffer->size_class) > CACHE_LIMIT) {
        unmap(buffer);
    } else {
        while (!put_in_cache(buffer))
            clear_cache(); // what was freed last is the likeliest to be asked for
    }
}

void *mo_buffer_contents(const mo_buffer *buffer) {
    return buffer->contents;
}

size_t mo_buffer_size(const mo_buffer *buffer) {
    return buffer->size;
}

size_t mo_buffer_capacity(const mo_buffer *buffer) {
    return buffer->size_class < 0 ? buffer->size : class_bytes(buffer->size_class);
}

bool mo_buffer_has_pages(const mo_buffer *buffer) {
    return buffer->has_pages;
}

bool mo_buffer_is_own(const mo_buffer *buffer) {
    return buffer->size_class >= 0;
}

bool mo_buffer_is_frozen(const mo_buffer *buffer) {
    return buffer->frozen;
}

// ---- Wrappers ----------------------------------------------------------------------------------

static pthread_mutex_t wrapping_lock = PTHREAD_MUTEX_INITIALIZER;

mo_status mo_buffer_wrapper(mo_buffer *buffer, mo_device *device, void **wrapper) {
    mo_status status = MO_OK;
    *wrapper = NULL;
    pthread_mutex_lock(&wrapping_lock);
    int i = 0;
    while (i < MAX_WRAPPERS - 1 && buffer->wrappings[i].device &&
           buffer->wrappings[i].device != device)
        i++;
    if (!buffer->wrappings[i].device) {
        status = device->wrap(buffer, wrapper);
        if (*wrapper)
            buffer->wrappings[i] = (wrapping){device, *wrapper};
    } else if (buffer->wrappings[i].device == device) {
        *wrapper = buffer->wrappings[i].wrapper;
    }
    pthread_mutex_unlock(&wrapping_lock);
    return status;
}

// ---- Fork --------------------------------------------------------------------------------------

// A forked child has one thread: whoever held the lock in the parent does not exist there. Holding
// it during the fork means that the lists are whole.

static void lock_buffers(void) {
    pthread_mutex_lock(&wrapping_lock);
    pthread_mutex_lock(&cache.lock);
}

static void unlock_buffers(void) {
    pthread_mutex_unlock(&cache.lock);
    pthread_mutex_unlock(&wrapping_lock);
}

__attribute__((constructor)) static void survive_fork(void) {
    pthread_atfork(lock_buffers, unlock_buffers, unlock_buffers);
}

void mo_copied(uint64_t *in, uint64_t *out) {
    *in = atomic_load(&copied_in);
    *out = atomic_load(&copied_out);
}

void mo_count_copy(size_t in, size_t out) {
    atomic_fetch_add(&copied_in, in);
    atomic_fetch_add(&copied_out, out);
}
