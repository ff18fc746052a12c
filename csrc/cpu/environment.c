// The environment variables of the CPU device.

#include "cpu/isa.h"
#include "cpu/thread_count.h"

mo_status mo_check_environment(void) {
    const mo_status status = mo_check_num_threads_environment();
    return status == MO_OK ? mo_check_isa_environment() : status;
}
