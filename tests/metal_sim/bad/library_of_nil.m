// expect: ^newLibraryWithSource:options:error: the source is nil$
#include "setup.h"

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        NSString *nothing = nil;
        [s.device newLibraryWithSource:nothing options:nil error:NULL];
        tear_down(s);
    }
}
