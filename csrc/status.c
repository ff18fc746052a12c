// The per-thread message of the last failed call.

#include "status.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char message[1024];

const char *mo_status_message(void) {
    return message;
}

mo_status mo_fail(mo_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return status;
}

mo_status mo_fail_memory(size_t size) {
    return mo_fail(MO_OUT_OF_MEMORY, "out of memory: %zu bytes could not be allocated", size);
}
