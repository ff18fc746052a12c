// expect: ^setBuffer:offset:atIndex: index 31 is beyond 30$
#include "setup.h"

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        id<MTLComputeCommandEncoder> encoder = begin(s, [s.queue commandBuffer]);
        [encoder setBuffer:s.x offset:0 atIndex:31];
        [encoder endEncoding];
        tear_down(s);
    }
}
