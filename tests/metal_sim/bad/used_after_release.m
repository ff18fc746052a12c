// expect: ^contents sent to a MTLBuffer that no longer exists
#include "setup.h"

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        [s.x release];
        [s.x contents];
        s.x = nil;
        tear_down(s);
    }
}
