// expect: ^dispatchThreads:threadsPerThreadgroup:: no pipeline is set$
#include "setup.h"

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        id<MTLComputeCommandEncoder> encoder = [[s.queue commandBuffer] computeCommandEncoder];
        dispatch(encoder);
        [encoder endEncoding];
        tear_down(s);
    }
}
