// expect: argument x at index 0: offset 2 is not a multiple of its alignment, 4
#include "setup.h"

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        id<MTLCommandBuffer> commands = [s.queue commandBuffer];
        id<MTLComputeCommandEncoder> encoder = begin(s, commands);
        [encoder setBuffer:s.x offset:2 atIndex:0];
        dispatch(encoder);
        [encoder endEncoding];
        [commands commit];
        [commands waitUntilCompleted];
        tear_down(s);
    }
}
