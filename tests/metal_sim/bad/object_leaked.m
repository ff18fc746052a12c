// expect: ^live: 1 MTL(Device|Buffer), 1 MTL(Device|Buffer)$
#include "setup.h"

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        [s.x retain];
        tear_down(s);
    }
}
