/* The rounding direction and flush-to-zero of the calling thread, to set and to read back. */
#include <fenv.h>
#include <stdint.h>

static const int directions[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};

/* direction: index into the list above. Returns 0 on success. */
int set_rounding(int direction) {
    return fesetround(directions[direction]);
}

int get_rounding(void) {
    const int current = fegetround();

    for (int i = 0; i < 4; i++)
        if (directions[i] == current)
            return i;
    return -1;
}

#if defined(__x86_64__)
#include <xmmintrin.h>

enum { FLUSH = 0x8040 }; /* results (FTZ) and inputs (DAZ) */

void set_flush_to_zero(int on) {
    const unsigned int control = _mm_getcsr();

    _mm_setcsr(on ? control | FLUSH : control & ~(unsigned int)FLUSH);
}

int get_flush_to_zero(void) {
    return (_mm_getcsr() & FLUSH) == FLUSH;
}

#elif defined(__aarch64__)

static const uint64_t FLUSH = UINT64_C(1) << 24; /* FZ: results and inputs */

static uint64_t control(void) {
    uint64_t value;

    __asm__ volatile("mrs %0, fpcr" : "=r"(value));
    return value;
}

void set_flush_to_zero(int on) {
    const uint64_t value = on ? control() | FLUSH : control() & ~FLUSH;

    __asm__ volatile("msr fpcr, %0" : : "r"(value));
}

int get_flush_to_zero(void) {
    return (control() & FLUSH) != 0;
}

#else
#error "say here how this processor switches flush-to-zero on"
#endif
