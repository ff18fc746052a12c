// expect: ^waitUntilCompleted: the command buffer is not committed$
#include "setup.h"

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        [encoded(s) waitUntilCompleted];
        tear_down(s);
    }
}
