/* Runs y[i] = x[i] for 64 floats with x in the caller's page; NULL, or Metal's error. */
#include "bad/setup.h"

#include <stdio.h>

__attribute__((visibility("default"))) const char *run_over_memory(void *page);

const char *run_over_memory(void *page) {
    static char text[1024];
    @autoreleasepool {
        struct setup s = set_up();
        [s.x release];
        s.x = [s.device newBufferWithBytesNoCopy:page
                                          length:16384
                                         options:MTLResourceStorageModeShared
                                     deallocator:nil];
        id<MTLCommandBuffer> commands = encoded(s);
        [commands commit];
        [commands waitUntilCompleted];
        NSError *error = commands.error;
        if (error)
            snprintf(text, sizeof text, "%s", error.localizedDescription.UTF8String);
        tear_down(s);
        return error ? text : NULL;
    }
}
