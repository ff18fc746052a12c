// expect: ^endEncoding: the encoder is used after endEncoding$
#include "setup.h"

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        id<MTLCommandBuffer> commands = [s.queue commandBuffer];
        id<MTLComputeCommandEncoder> encoder = begin(s, commands);
        [encoder endEncoding];
        [encoder endEncoding];
        tear_down(s);
    }
}
