// expect: ^commit: committed a second time$
#include "setup.h"

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        id<MTLCommandBuffer> commands = encoded(s);
        [commands commit];
        [commands commit];
        [commands waitUntilCompleted];
        tear_down(s);
    }
}
