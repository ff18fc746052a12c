// expect: ^dispatchThreadgroups:threadsPerThreadgroup:: an empty threadgroup$
#include "setup.h"

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        id<MTLComputeCommandEncoder> encoder = begin(s, [s.queue commandBuffer]);
        [encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1)
                threadsPerThreadgroup:MTLSizeMake(8, 0, 1)];
        [encoder endEncoding];
        tear_down(s);
    }
}
