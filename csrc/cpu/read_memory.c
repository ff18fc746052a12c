// A plain loop is as fast as wide loads and prefetching here: memory is the limit, not the loads.

#include "cpu/read_memory.h"
#include "cpu/interrupt.h"
#include "cpu/threads.h"

#include <stdatomic.h>
#include <string.h>

// Threads share the memory by blocks of so many words.
#define BLOCK_WORDS 8192

// What a core reads in a nanosecond, in words, roughly.
#define WORDS_PER_STEP 2

typedef struct reading {
    const unsigned char *memory;
    _Atomic uint64_t combined;
} reading;

static uint64_t combine_words(const unsigned char *memory, size_t n) {
    uint64_t combined = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t word;
        memcpy(&word, memory + i * sizeof word, sizeof word); // it may be unaligned
        combined ^= word;
    }
    return combined;
}

static void read_blocks(void *context, size_t begin, size_t end) {
    reading *r = context;
    const unsigned char *first = r->memory + begin * BLOCK_WORDS * sizeof(uint64_t);
    atomic_fetch_xor(&r->combined, combine_words(first, (end - begin) * BLOCK_WORDS));
}

mo_status mo_read_memory(const void *memory, size_t size, uint64_t *combined) {
    reading r = {.memory = memory};
    const size_t words = size / sizeof(uint64_t), blocks = words / BLOCK_WORDS;
    mo_begin_polling();
    if (blocks > 0) {
        const mo_status status =
            mo_parallel_for(read_blocks, &r, blocks, BLOCK_WORDS / WORDS_PER_STEP);
        if (status != MO_OK)
            return status;
    }
    const size_t shared = blocks * BLOCK_WORDS;
    const unsigned char *rest = r.memory + shared * sizeof(uint64_t);
    uint64_t last = 0;
    if (size % sizeof last > 0)
        memcpy(&last, r.memory + words * sizeof last, size % sizeof last);
    *combined = r.combined ^ combine_words(rest, words - shared) ^ last;
    return MO_OK;
}
