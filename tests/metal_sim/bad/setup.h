/* What the bad programs in Objective-C start from: a device, a queue, a pipeline and a buffer. */
#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

struct setup {
    id<MTLDevice> device;
    id<MTLCommandQueue> queue;
    id<MTLComputePipelineState> pipeline; /* y[i] = x[i]; x at index 0, y at 1 */
    id<MTLBuffer> x, y;
};

static inline struct setup set_up(void) {
    struct setup s;
    NSError *error = nil;
    s.device = MTLCreateSystemDefaultDevice();
    s.queue = [s.device newCommandQueue];
    NSString *source = @"#include <metal_stdlib>\nusing namespace metal;\n"
                        "kernel void f(device const float *x [[buffer(0)]],\n"
                        "              device float *y [[buffer(1)]],\n"
                        "              uint i [[thread_position_in_grid]])\n"
                        "{\n    y[i] = x[i];\n}\n";
    MTLCompileOptions *options = [[MTLCompileOptions new] autorelease];
    options.fastMathEnabled = NO;
    id<MTLLibrary> library = [s.device newLibraryWithSource:source options:options error:&error];
    id<MTLFunction> function = [library newFunctionWithName:@"f"];
    s.pipeline = [s.device newComputePipelineStateWithFunction:function error:&error];
    [function release];
    [library release];
    s.x = [s.device newBufferWithLength:256 options:MTLResourceStorageModeShared];
    s.y = [s.device newBufferWithLength:256 options:MTLResourceStorageModeShared];
    return s;
}

static inline void tear_down(struct setup s) {
    [s.x release];
    [s.y release];
    [s.pipeline release];
    [s.queue release];
    [s.device release];
}

static inline id<MTLComputeCommandEncoder> begin(struct setup s, id<MTLCommandBuffer> commands) {
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder setComputePipelineState:s.pipeline];
    [encoder setBuffer:s.x offset:0 atIndex:0];
    [encoder setBuffer:s.y offset:0 atIndex:1];
    return encoder;
}

static inline void dispatch(id<MTLComputeCommandEncoder> encoder) {
    [encoder dispatchThreads:MTLSizeMake(64, 1, 1) threadsPerThreadgroup:MTLSizeMake(64, 1, 1)];
}

/* A command buffer that is ready to be committed. */
static inline id<MTLCommandBuffer> encoded(struct setup s) {
    id<MTLCommandBuffer> commands = [s.queue commandBuffer];
    id<MTLComputeCommandEncoder> encoder = begin(s, commands);
    dispatch(encoder);
    [encoder endEncoding];
    return commands;
}
