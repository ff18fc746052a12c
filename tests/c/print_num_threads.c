// Prints how many threads the process would use.

#include "cpu/thread_count.h"

#include <stdio.h>

int main(void) {
    printf("%d\n", mo_initial_num_threads());
    return 0;
}
