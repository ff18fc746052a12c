// expect: ^newComputePipelineStateWithFunction:error:: the function is nil$
#include "setup.h"

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        id<MTLFunction> nothing = nil;
        [s.device newComputePipelineStateWithFunction:nothing error:NULL];
        tear_down(s);
    }
}
