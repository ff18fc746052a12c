#include "cpu/interrupt.h"
#include "cpu/clock.h"
#include "device.h"

#define NOT_POLLED 0
#define POLLED_ONCE 1

// When this thread asks next; in small work, which polls once, there is no such time.
static _Thread_local int64_t next_check;

void mo_begin_polling(void) {
    next_check = NOT_POLLED;
}

bool mo_poll_interrupt(void) {
    if (next_check == NOT_POLLED) {
        next_check = POLLED_ONCE;
        return false;
    }
    const int64_t now = mo_nanoseconds();
    bool interrupted = false;
    if (next_check > now)
        return false;
    if (next_check != POLLED_ONCE)
        interrupted = mo_interrupted(); // may do work of its own, on this thread
    next_check = now + MO_INTERRUPT_NANOSECONDS;
    return interrupted;
}
