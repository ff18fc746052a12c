// expect: ^in flight: 1$
#include "setup.h"

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        [encoded(s) commit];
        tear_down(s);
    }
}
