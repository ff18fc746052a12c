// expect: ^MTLBuffer does not respond to gpuAddress$
#include "setup.h"

@protocol Newer
- (uint64_t)gpuAddress;
@end

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        [(id<Newer>)s.x gpuAddress];
        tear_down(s);
    }
}
