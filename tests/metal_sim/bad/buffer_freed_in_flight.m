// expect: ^an MTLBuffer of 256 bytes was freed while a command buffer uses it$
#include "setup.h"

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        id<MTLCommandBuffer> commands = [s.queue commandBufferWithUnretainedReferences];
        id<MTLComputeCommandEncoder> encoder = begin(s, commands);
        dispatch(encoder);
        [encoder endEncoding];
        [commands commit];
        [s.x release];
        s.x = nil;
        [commands waitUntilCompleted];
        tear_down(s);
    }
}
