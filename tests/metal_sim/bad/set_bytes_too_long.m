// expect: ^setBytes:length:atIndex: length 4097 is not within 1 to 4096$
#include "setup.h"

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        char bytes[4097] = {0};
        id<MTLComputeCommandEncoder> encoder = begin(s, [s.queue commandBuffer]);
        [encoder setBytes:bytes length:sizeof bytes atIndex:2];
        [encoder endEncoding];
        tear_down(s);
    }
}
