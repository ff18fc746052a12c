// expect: ^the CPU touched byte 0 of a buffer of 256 bytes while a command buffer writes it$
#include "setup.h"

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        id<MTLCommandBuffer> first = encoded(s), second = encoded(s);
        [first commit];
        [second commit];
        [first waitUntilCompleted];
        (void)*(volatile float *)s.y.contents;
        [second waitUntilCompleted];
        tear_down(s);
    }
}
