// expect: ^release sent to a MTLCommandBuffer that no longer exists
#include "setup.h"

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        @autoreleasepool {
            [[s.queue commandBuffer] release];
        }
        tear_down(s);
    }
}
