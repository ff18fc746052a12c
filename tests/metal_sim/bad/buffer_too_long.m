// expect: ^newBufferWithLength:options:: the length is above maxBufferLength \(length \d+\)$
#include "setup.h"

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        [s.device newBufferWithLength:s.device.maxBufferLength + 1
                              options:MTLResourceStorageModeShared];
        tear_down(s);
    }
}
