// expect: the length is not a multiple of a page of 16384 bytes
#include "setup.h"
#include <stdlib.h>

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        char *page = aligned_alloc(16384, 32768);
        id<MTLBuffer> buffer = [s.device newBufferWithBytesNoCopy:page
                                                           length:20480
                                                          options:MTLResourceStorageModeShared
                                                      deallocator:nil];
        [buffer release];
        free(page);
        tear_down(s);
    }
}
