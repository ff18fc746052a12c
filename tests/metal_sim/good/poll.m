/* Work is also done when status has been read often enough, or at once where the test says so. */
#include "../bad/setup.h"
#include "check.h"

const char *run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        id<MTLCommandBuffer> commands = encoded(s);
        metal_sim_set_status_reads(5);
        [commands commit];
        for (int i = 0; i < 4; i++)
            CHECK(commands.status == MTLCommandBufferStatusCommitted);
        CHECK(commands.status == MTLCommandBufferStatusCompleted);
        commands = encoded(s);
        metal_sim_set_status_reads(0);
        [commands commit];
        CHECK(metal_sim_in_flight() == 0);
        tear_down(s);
    }
    return NULL;
}
