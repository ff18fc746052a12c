#include "cuda/memory.h"
#include "buffer.h"
#include "cuda/context.h"
#include "device.h"
#include "status.h"

#include <pthread.h>
#include <stdlib.h>

// Bytes of free blocks that wait to be used again.
#define POOL_LIMIT ((size_t)256 << 20)
#define SMALLEST_BLOCK ((size_t)1 << 16)

#define KEPT_SHARE 0.75

#define REGISTERED_LIMIT ((size_t)1 << 30)

// What is kept with the memory of one buffer.
typedef struct residence {
    unsigned char *memory;
    size_t size;
    enum { UNREGISTERED, REGISTERED, REFUSED } registration;
    mo_cuda_copy *copies; // of what the buffer holds now
} residence;

struct mo_cuda_copy {
    residence *owner;
    mo_range range;
    CUdeviceptr memory; // of the byte range.start / MO_CUDA_ALIGNMENT * MO_CUDA_ALIGNMENT
    size_t size;
    size_t users;
    mo_cuda_copy *next;          // of the same owner
    mo_cuda_copy *older, *newer; // by last use
};

// Guards everything here. Nobody holds it who waits for anything but the driver.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static mo_cuda_block *pool;
static size_t pool_size;
static mo_cuda_copy *oldest, *newest;
static size_t kept;
static size_t registered;

// ---- Allocation. With the lock held and the context entered ------------------------------------

static bool empty_pool(void) {
    const bool had_any = pool != NULL;
    while (pool) {
        mo_cuda_block *block = pool;
        pool = block->next;
        mo_cuda.cuMemFree(block->memory);
        free(block);
    }
    pool_size = 0;
    return had_any;
}

static void unlink_by_use(mo_cuda_copy *copy) {
    *(copy->older ? &copy->older->newer : &oldest) = copy->newer;
    *(copy->newer ? &copy->newer->older : &newest) = copy->older;
}

static void link_as_newest(mo_cuda_copy *copy) {
    copy->older = newest;
    copy->newer = NULL;
    *(newest ? &newest->newer : &oldest) = copy;
    newest = copy;
}

static void drop(mo_cuda_copy *copy) {
    mo_cuda_copy **place = &copy->owner->copies;
    while (*place != copy)
        place = &(*place)->next;
    *place = copy->next;
    unlink_by_use(copy);
    kept -= copy->size;
    mo_cuda.cuMemFree(copy->memory);
    free(copy);
}

static bool drop_oldest(void) {
    for (mo_cuda_copy *copy = oldest; copy; copy = copy->newer)
        if (copy->users == 0) {
            drop(copy);
            return true;
        }
    return false;
}

static mo_status allocate(size_t size, CUdeviceptr *memory) {
    char text[256];
    CUresult result;
    do
        result = mo_cuda.cuMemAlloc(memory, size);
    while (result == CUDA_ERROR_OUT_OF_MEMORY && (empty_pool() || drop_oldest()));
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return mo_fail(MO_OUT_OF_MEMORY,
                       "CUDA: %zu bytes of the GPU's memory could not be allocated: %s", size,
                       mo_cuda_error_text(result, text, sizeof text));
    return mo_cuda_check(result, "cuMemAlloc");
}

// ---- Blocks ------------------------------------------------------------------------------------

// Four sizes for each doubling, so that a block fits the next commit of about the same size.
static size_t block_size(size_t size) {
    size_t power = SMALLEST_BLOCK;
    if (size <= power)
        return power;
    while (power < size / 2)
        power *= 2;
    const size_t step = power / 4;
    return (size + step - 1) / step * step;
}

// Called with the lock held. NULL if there is none.
static mo_cuda_block *take_from_pool(size_t size) {
    mo_cuda_block **place = &pool;
    while (*place && (*place)->size != size)
        place = &(*place)->next;
    mo_cuda_block *block = *place;
    if (block) {
        *place = block->next;
        pool_size -= size;
    }
    return block;
}

// Called with the lock held.
static mo_status make_block(size_t size, mo_cuda_block **result) {
    mo_cuda_block *block = malloc(sizeof *block);
    if (!block)
        return mo_fail_memory(sizeof *block);
    *block = (mo_cuda_block){.size = size};
    const mo_status status = allocate(size, &block->memory);
    if (status == MO_OK)
        *result = block;
    else
        free(block);
    return status;
}

mo_status mo_cuda_take_block(size_t size, mo_cuda_block **block) {
    mo_status status = MO_OK;
    pthread_mutex_lock(&lock);
    *block = take_from_pool(block_size(size));
    if (!*block)
        status = make_block(block_size(size), block);
    pthread_mutex_unlock(&lock);
    return status;
}

void mo_cuda_give_block(mo_cuda_block *block) {
    if (!block)
        return;
    pthread_mutex_lock(&lock);
    block->next = pool;
    pool = block;
    pool_size += block->size;
    if (pool_size > POOL_LIMIT && mo_cuda_enter_again()) {
        empty_pool();
        mo_cuda_leave();
    }
    pthread_mutex_unlock(&lock);
}

void mo_cuda_trim(void) {
    if (!mo_cuda_enter_again())
        return;
    pthread_mutex_lock(&lock);
    empty_pool();
    pthread_mutex_unlock(&lock);
    mo_cuda_leave();
}

// ---- Copies ------------------------------------------------------------------------------------

static mo_cuda_copy *find_copy(const residence *owner, mo_range range) {
    mo_cuda_copy *copy = owner->copies;
    while (copy && !(copy->range.start <= range.start && range.end <= copy->range.end))
        copy = copy->next;
    return copy;
}

// Copies of parts of the range: slices that were used before the whole.
static void drop_parts(residence *owner, mo_range range) {
    for (mo_cuda_copy *copy = owner->copies, *next; copy; copy = next) {
        next = copy->next;
        if (copy->users == 0 && range.start <= copy->range.start && copy->range.end <= range.end)
            drop(copy);
    }
}

// Allocates the copy and starts to fill it. Called with the lock held.
static mo_status fill(mo_cuda_copy *copy) {
    const size_t limit = (size_t)(KEPT_SHARE * (double)mo_cuda_gpu_memory());
    while (kept + copy->size > limit && drop_oldest())
        ;
    mo_status status = allocate(copy->size, &copy->memory);
    if (status != MO_OK)
        return status;
    status = mo_cuda_check(mo_cuda.cuMemcpyHtoDAsync(mo_cuda_copied(copy, copy->range.start),
                                                     copy->owner->memory + copy->range.start,
                                                     copy->range.end - copy->range.start,
                                                     mo_cuda_stream()),
                           "cuMemcpyHtoDAsync");
    if (status == MO_OK)
        mo_count_copy(copy->range.end - copy->range.start, 0);
    else
        mo_cuda.cuMemFree(copy->memory);
    return status;
}

// Called with the lock held.
static mo_status make_copy(residence *owner, mo_range range, mo_cuda_copy **result) {
    mo_cuda_copy *copy = malloc(sizeof *copy);
    if (!copy)
        return mo_fail_memory(sizeof *copy);
    drop_parts(owner, range);
    *copy = (mo_cuda_copy){.owner = owner, .range = range};
    copy->size = range.end - range.start / MO_CUDA_ALIGNMENT * MO_CUDA_ALIGNMENT;
    const mo_status status = fill(copy);
    if (status != MO_OK) {
        free(copy);
        return status;
    }
    copy->next = owner->copies;
    owner->copies = copy;
    link_as_newest(copy);
    kept += copy->size;
    *result = copy;
    return MO_OK;
}

mo_status mo_cuda_hold_copy(mo_buffer *buffer, mo_range range, mo_cuda_copy **result) {
    void *wrapper;
    mo_status status = mo_buffer_wrapper(buffer, &mo_cuda_device, &wrapper);
    if (status != MO_OK)
        return status;
    pthread_mutex_lock(&lock);
    mo_cuda_copy *copy = find_copy(wrapper, range);
    if (!copy)
        status = make_copy(wrapper, range, &copy);
    if (status == MO_OK) {
        unlink_by_use(copy);
        link_as_newest(copy);
        copy->users++;
        *result = copy;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

void mo_cuda_let_go(mo_cuda_copy *copy) {
    if (!copy)
        return;
    pthread_mutex_lock(&lock);
    copy->users--;
    pthread_mutex_unlock(&lock);
}

CUdeviceptr mo_cuda_copied(const mo_cuda_copy *copy, size_t offset) {
    return copy->memory + (offset - copy->range.start / MO_CUDA_ALIGNMENT * MO_CUDA_ALIGNMENT);
}

// ---- Residences --------------------------------------------------------------------------------

mo_status mo_cuda_wrap(const mo_buffer *buffer, void **wrapper) {
    *wrapper = NULL;
    if (!mo_buffer_is_own(buffer) && !mo_buffer_is_frozen(buffer))
        return MO_OK; // there is nothing to be kept
    residence *r = calloc(1, sizeof *r);
    if (!r)
        return mo_fail_memory(sizeof *r);
    r->memory = mo_buffer_contents(buffer);
    r->size = mo_buffer_capacity(buffer);
    *wrapper = r;
    return MO_OK;
}

void mo_cuda_forget(void *wrapper) {
    residence *r = wrapper;
    if (mo_in_forked_child()) // the driver is the parent's; so is what it holds
        return;
    pthread_mutex_lock(&lock);
    const bool entered = r->copies && mo_cuda_enter_again();
    while (r->copies)
        drop(r->copies);
    if (entered)
        mo_cuda_leave();
    pthread_mutex_unlock(&lock);
}

static bool unregister(residence *r) {
    if (r->registration != REGISTERED)
        return true;
    if (!mo_cuda_enter_again())
        return false;
    const bool done = mo_cuda.cuMemHostUnregister(r->memory) == CUDA_SUCCESS;
    mo_cuda_leave();
    pthread_mutex_lock(&lock);
    registered -= r->size;
    pthread_mutex_unlock(&lock);
    return done;
}

bool mo_cuda_unwrap(void *wrapper) {
    if (mo_in_forked_child())
        return true;
    residence *r = wrapper;
    const bool is_free = unregister(r);
    free(r);
    return is_free;
}

// Called with the lock held.
static void try_to_register(residence *r) {
    if (r->registration != UNREGISTERED || r->size > REGISTERED_LIMIT - registered)
        return;
    if (mo_cuda.cuMemHostRegister(r->memory, r->size, 0) == CUDA_SUCCESS) {
        r->registration = REGISTERED;
        registered += r->size;
    } else {
        r->registration = REFUSED; // the driver then copies by way of pages of its own
    }
}

mo_status mo_cuda_register(mo_buffer *buffer) {
    void *wrapper;
    const mo_status status =
        mo_buffer_is_own(buffer) ? mo_buffer_wrapper(buffer, &mo_cuda_device, &wrapper) : MO_OK;
    if (status != MO_OK || !mo_buffer_is_own(buffer))
        return status;
    pthread_mutex_lock(&lock);
    try_to_register(wrapper);
    pthread_mutex_unlock(&lock);
    return MO_OK;
}
