// expect: ^commit: a command encoder has not ended$
#include "setup.h"

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        id<MTLCommandBuffer> commands = [s.queue commandBuffer];
        dispatch(begin(s, commands));
        [commands commit];
        [commands waitUntilCompleted];
        tear_down(s);
    }
}
