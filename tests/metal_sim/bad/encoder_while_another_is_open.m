// expect: ^computeCommandEncoder: the encoder before it has not ended$
#include "setup.h"

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        id<MTLCommandBuffer> commands = [s.queue commandBuffer];
        id<MTLComputeCommandEncoder> encoder = begin(s, commands);
        begin(s, commands);
        [encoder endEncoding];
        tear_down(s);
    }
}
