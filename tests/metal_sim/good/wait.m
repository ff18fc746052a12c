/* Work is done at waitUntilCompleted, in the queue's order, and not before. */
#include "../bad/setup.h"
#include "check.h"

const char *run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        float *x = s.x.contents, *y = s.y.contents;
        x[5] = 7;
        id<MTLCommandBuffer> first = encoded(s), second = encoded(s);
        CHECK(first.status == MTLCommandBufferStatusNotEnqueued);
        [first commit];
        [second commit];
        CHECK(metal_sim_in_flight() == 2 && metal_sim_dispatches() == 0);
        CHECK(first.status == MTLCommandBufferStatusCommitted);
        [second waitUntilCompleted];
        CHECK(metal_sim_in_flight() == 0 && metal_sim_dispatches() == 2);
        CHECK(first.status == MTLCommandBufferStatusCompleted && first.error == nil);
        CHECK(second.GPUEndTime >= second.GPUStartTime && second.GPUStartTime > 0);
        CHECK(y[5] == 7);
        tear_down(s);
    }
    return NULL;
}
