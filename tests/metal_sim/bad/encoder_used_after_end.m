// expect: ^setBuffer:offset:atIndex:: the encoder is used after endEncoding$
#include "setup.h"

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        id<MTLCommandBuffer> commands = [s.queue commandBuffer];
        id<MTLComputeCommandEncoder> encoder = begin(s, commands);
        dispatch(encoder);
        [encoder endEncoding];
        [encoder setBuffer:s.y offset:0 atIndex:0];
        [commands commit];
        [commands waitUntilCompleted];
        tear_down(s);
    }
}
