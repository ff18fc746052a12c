#include "test_hooks.h"
#include "metal_sim.h"

double mo_test_projection_work = 0x1p24;
double mo_test_qkv_split_work = 0x1p16;

void mo_test_buffer_allocated(const void *contents, size_t size, size_t capacity) {
    metal_sim_set_padding(contents, size, capacity);
}
