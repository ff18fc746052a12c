// expect: ^setBuffer:offset:atIndex: offset 256 is not within the buffer's 256 bytes$
#include "setup.h"

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        id<MTLComputeCommandEncoder> encoder = begin(s, [s.queue commandBuffer]);
        [encoder setBuffer:s.x offset:256 atIndex:0];
        [encoder endEncoding];
        tear_down(s);
    }
}
