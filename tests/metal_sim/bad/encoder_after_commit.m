// expect: ^computeCommandEncoder: the command buffer is committed$
#include "setup.h"

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        id<MTLCommandBuffer> commands = encoded(s);
        [commands commit];
        [commands computeCommandEncoder];
        [commands waitUntilCompleted];
        tear_down(s);
    }
}
