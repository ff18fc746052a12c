// expect: dispatchThreads:threadsPerThreadgroup:: the encoder is used after the command buffer's
// commit
#include "setup.h"

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        id<MTLCommandBuffer> commands = [s.queue commandBuffer];
        id<MTLComputeCommandEncoder> encoder = begin(s, commands);
        [commands commit];
        dispatch(encoder);
        [commands waitUntilCompleted];
        tear_down(s);
    }
}
