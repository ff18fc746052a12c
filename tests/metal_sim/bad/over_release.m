// expect: ^release sent to a MTLBuffer that no longer exists
#include "setup.h"

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        [s.x release];
        tear_down(s);
    }
}
