// expect: ^the CPU touched byte 12 of a buffer of 256 bytes while a command buffer writes it$
#include "setup.h"

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        id<MTLCommandBuffer> commands = encoded(s);
        [commands commit];
        (void)((volatile float *)s.y.contents)[3];
        [commands waitUntilCompleted];
        tear_down(s);
    }
}
