// expect: ^an MTLComputeCommandEncoder was freed without endEncoding$
#include "setup.h"

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        @autoreleasepool {
            begin(s, [s.queue commandBuffer]);
        }
        tear_down(s);
    }
}
