/* New buffers hold no zeros; memory of the caller is used in place, also where it is read-only;
 * what the GPU only reads, the CPU may read; and a released buffer lives as long as a command
 * buffer retains it. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../bad/setup.h"
#include "check.h"

static void *read_only_pages(void) {
    FILE *file = tmpfile();
    char page[16384];
    memset(page, 0x40, sizeof page); /* 3.0039215 as a float */
    fwrite(page, 1, sizeof page, file);
    fflush(file);
    char *area = mmap(NULL, 32768, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *aligned = (void *)(((uintptr_t)area + 16383) & ~(uintptr_t)16383);
    void *mapped = mmap(aligned, 16384, PROT_READ, MAP_PRIVATE | MAP_FIXED, fileno(file), 0);
    fclose(file);
    return mapped;
}

const char *run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        const unsigned char *fresh = s.x.contents;
        CHECK(fresh[0] && fresh[255]);
        CHECK(s.x.length == 256 && s.x.storageMode == MTLStorageModeShared);
        NSUInteger before = s.device.currentAllocatedSize;
        void *pages = read_only_pages();
        [s.x release];
        s.x = [s.device newBufferWithBytesNoCopy:pages
                                          length:16384
                                         options:MTLResourceStorageModeShared
                                     deallocator:nil];
        CHECK(s.x.contents == pages);
        CHECK(s.device.currentAllocatedSize == before + 16384 - 256);
        id<MTLCommandBuffer> commands = encoded(s);
        [commands commit];
        [s.x release];
        s.x = nil;
        CHECK(*(volatile float *)pages > 3);
        [commands waitUntilCompleted];
        CHECK(((float *)s.y.contents)[63] > 3);
        CHECK(*(volatile float *)pages > 3);
        tear_down(s);
    }
    return NULL;
}
