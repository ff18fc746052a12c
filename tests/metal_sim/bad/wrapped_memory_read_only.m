// expect: argument y at index 1: the pages behind the buffer are mapped read-only
#include "setup.h"
#include <sys/mman.h>

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        char *area = mmap(NULL, 32768, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        void *aligned = (void *)(((uintptr_t)area + 16383) & ~(uintptr_t)16383);
        [s.y release];
        s.y = [s.device newBufferWithBytesNoCopy:aligned
                                          length:16384
                                         options:MTLResourceStorageModeShared
                                     deallocator:nil];
        id<MTLCommandBuffer> commands = encoded(s);
        [commands commit];
        [commands waitUntilCompleted];
        tear_down(s);
        munmap(area, 32768);
    }
}
