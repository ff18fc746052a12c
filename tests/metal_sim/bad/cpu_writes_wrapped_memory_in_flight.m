// expect: ^the CPU touched byte 0 of a buffer of 16384 bytes while a command buffer reads it$
#include "setup.h"
#include <stdlib.h>

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        void *page = aligned_alloc(16384, 16384);
        id<MTLBuffer> buffer = [s.device newBufferWithBytesNoCopy:page
                                                           length:16384
                                                          options:MTLResourceStorageModeShared
                                                      deallocator:nil];
        [s.x release];
        s.x = buffer;
        id<MTLCommandBuffer> commands = encoded(s);
        [commands commit];
        *(volatile float *)page = 1;
        [commands waitUntilCompleted];
        tear_down(s);
        free(page);
    }
}
