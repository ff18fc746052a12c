// expect: the pointer is not aligned to a page of 16384 bytes
#include "setup.h"
#include <stdlib.h>

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        char *page = aligned_alloc(16384, 32768);
        id<MTLBuffer> buffer = [s.device newBufferWithBytesNoCopy:page + 4096
                                                           length:16384
                                                          options:MTLResourceStorageModeShared
                                                      deallocator:nil];
        [buffer release];
        free(page);
        tear_down(s);
    }
}
