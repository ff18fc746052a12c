/* The simulated machine is what the test asks for. */
#include "check.h"

static NSUInteger new_api_seen(void) {
    if (@available(macOS 15.0, *))
        return 15;
    if (@available(macOS 14.2, *))
        return 14;
    return 13;
}

const char *run(void) {
    @autoreleasepool {
        MTLCompileOptions *options = [[MTLCompileOptions new] autorelease];
        CHECK(options.fastMathEnabled == YES);
        CHECK(new_api_seen() == 15 && [options respondsToSelector:@selector(setMathMode:)]);
        metal_sim_set_system_version(14, 1);
        CHECK(new_api_seen() == 13 && ![options respondsToSelector:@selector(setMathMode:)]);
        metal_sim_set_system_version(14, 2);
        CHECK(new_api_seen() == 14 && [options respondsToSelector:@selector(setLanguageVersion:)]);

        metal_sim_set_device_present(false);
        NSArray<id<MTLDevice>> *none = MTLCopyAllDevices();
        CHECK(MTLCreateSystemDefaultDevice() == nil && none.count == 0);
        metal_sim_set_device_present(true);
        NSArray<id<MTLDevice>> *all = MTLCopyAllDevices();
        id<MTLDevice> device = [all objectAtIndex:0];
        CHECK(all.count == 1 && device == all.firstObject);
        CHECK(strstr(device.name.UTF8String, "simulated") && device.hasUnifiedMemory);
        CHECK([device supportsFamily:MTLGPUFamilyApple7]);
        CHECK(![device supportsFamily:MTLGPUFamilyApple8]);
        CHECK([device supportsFamily:MTLGPUFamilyMetal3]);
        metal_sim_set_apple_family(6);
        CHECK(![device supportsFamily:MTLGPUFamilyApple7]);
        metal_sim_set_apple_family(0);
        CHECK(!device.hasUnifiedMemory && ![device supportsFamily:MTLGPUFamilyApple1]);
        metal_sim_set_max_buffer_length(1000);
        CHECK(device.maxBufferLength == 1000);
        CHECK([@"abc" isEqualToString:[NSString stringWithUTF8String:"abc"]]);
        CHECK([@"abc" length] == 3 && ![@"abc" isEqualToString:@"abd"]);
        [none release];
        [all release];
    }
    return NULL;
}
