// expect: the memory is not mapped
#include "setup.h"

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        void *page = (void *)(uintptr_t)0x4000;
        id<MTLBuffer> buffer = [s.device newBufferWithBytesNoCopy:page
                                                           length:16384
                                                          options:MTLResourceStorageModeShared
                                                      deallocator:nil];
        [buffer release];
        tear_down(s);
    }
}
