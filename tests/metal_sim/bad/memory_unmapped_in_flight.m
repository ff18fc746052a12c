// expect: the buffer's memory was freed before the GPU used it
#include "setup.h"
#include <sys/mman.h>

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        void *page = mmap(NULL, 32768, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        void *aligned = (void *)(((uintptr_t)page + 16383) & ~(uintptr_t)16383);
        id<MTLBuffer> buffer = [s.device newBufferWithBytesNoCopy:aligned
                                                           length:16384
                                                          options:MTLResourceStorageModeShared
                                                      deallocator:nil];
        [s.x release];
        s.x = buffer;
        id<MTLCommandBuffer> commands = encoded(s);
        [commands commit];
        munmap(page, 32768);
        [commands waitUntilCompleted];
        tear_down(s);
    }
}
