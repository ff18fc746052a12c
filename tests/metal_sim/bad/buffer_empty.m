// expect: ^newBufferWithLength:options:: the length is 0 \(length 0\)$
#include "setup.h"

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        [s.device newBufferWithLength:0 options:MTLResourceStorageModeShared];
        tear_down(s);
    }
}
