/* Dispatches of one encoder run in order and keep what is bound; a buffer that the second no longer
 * uses is no mistake; a pipeline knows its limits. */
#include "../bad/setup.h"
#include "check.h"

static id<MTLComputePipelineState> doubling(id<MTLDevice> device) {
    NSString *source =
        @"#include <metal_stdlib>\nusing namespace metal;\n"
         "kernel void g(device float *y [[buffer(1)]],\n"
         "              uint i [[thread_position_in_grid]])\n"
         "{\n    threadgroup float s[64];\n    s[i] = y[i];\n    y[i] = 2 * s[i];\n}\n";
    id<MTLLibrary> library = [device newLibraryWithSource:source options:nil error:NULL];
    id<MTLFunction> function = [library newFunctionWithName:library.functionNames.firstObject];
    id<MTLComputePipelineState> pipeline = [device newComputePipelineStateWithFunction:function
                                                                                 error:NULL];
    [function release];
    [library release];
    return pipeline;
}

const char *run(void) {
    @autoreleasepool {
        struct setup s = set_up();
        float *x = s.x.contents, *y = s.y.contents;
        for (int i = 0; i < 64; i++)
            x[i] = (float)i;
        id<MTLComputePipelineState> second = doubling(s.device);
        CHECK(second.staticThreadgroupMemoryLength == 256 && second.threadExecutionWidth == 32);
        CHECK(second.maxTotalThreadsPerThreadgroup == 1024);
        id<MTLCommandBuffer> commands = [s.queue commandBuffer];
        commands.label = @"two dispatches";
        id<MTLComputeCommandEncoder> encoder = begin(s, commands);
        dispatch(encoder);
        [encoder memoryBarrierWithScope:MTLBarrierScopeBuffers];
        [encoder setComputePipelineState:second];
        dispatch(encoder);
        [encoder endEncoding];
        [commands commit];
        [commands waitUntilCompleted];
        CHECK(commands.status == MTLCommandBufferStatusCompleted);
        CHECK(y[63] == 126 && y[1] == 2);
        [second release];
        tear_down(s);
    }
    return NULL;
}
