// expect: ^a MTLCommandBuffer was autoreleased with no pool in place, so it leaks$
#include "setup.h"

void run(void) {
    struct setup s;
    @autoreleasepool {
        s = set_up();
    }
    [s.queue commandBuffer];
    tear_down(s);
}
