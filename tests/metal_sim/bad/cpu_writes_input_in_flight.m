// expect: ^the CPU touched byte 8 of a buffer of 256 bytes while a command buffer reads it$
#include "setup.h"

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        id<MTLCommandBuffer> commands = encoded(s);
        [commands commit];
        ((volatile float *)s.x.contents)[2] = 1;
        [commands waitUntilCompleted];
        tear_down(s);
    }
}
