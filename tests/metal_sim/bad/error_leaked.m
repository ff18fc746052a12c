// expect: ^live: 1 NS(String|Error), 1 NS(String|Error)$
#include "setup.h"

void run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        NSError *error = nil;
        [s.device newLibraryWithSource:@"nonsense" options:nil error:&error];
        [error retain];
        tear_down(s);
    }
}
