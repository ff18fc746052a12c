// expect: ^dispatchThreads:threadsPerThreadgroup:: a grid of 4294967296 threads in one dimension$
#include "setup.h"

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        id<MTLComputeCommandEncoder> encoder = begin(s, [s.queue commandBuffer]);
        [encoder dispatchThreads:MTLSizeMake(1ul << 32, 1, 1)
            threadsPerThreadgroup:MTLSizeMake(64, 1, 1)];
        [encoder endEncoding];
        tear_down(s);
    }
}
