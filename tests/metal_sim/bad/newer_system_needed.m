// expect: ^MTLCompileOptions: mathMode needs macOS 15.0, the simulated system is 14.6$
#include "setup.h"
#include "metal_sim.h"

void run(void) {
    @autoreleasepool {
        metal_sim_set_system_version(14, 6);
        MTLCompileOptions *options = [[MTLCompileOptions new] autorelease];
        options.mathMode = MTLMathModeSafe;
    }
}
