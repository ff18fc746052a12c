#import <Metal/Metal.h>

#include <stdio.h>
#include <string.h>

#include "harness.h"

static int fail(char *text, size_t size, NSError *error, const char *otherwise) {
    snprintf(text, size, "%s", error ? error.localizedDescription.UTF8String : otherwise);
    return -1;
}

static id<MTLComputePipelineState> make_pipeline(id<MTLDevice> device,
                                                 const struct harness_job *job, NSError **error) {
    MTLCompileOptions *options = [[MTLCompileOptions new] autorelease];
    options.languageVersion = MTLLanguageVersion2_4;
    if (!job->fast_math)
        options.mathMode = MTLMathModeSafe;
    id<MTLLibrary> library =
        [[device newLibraryWithSource:[NSString stringWithUTF8String:job->source]
                              options:options
                                error:error] autorelease];
    MTLFunctionConstantValues *values = [[MTLFunctionConstantValues new] autorelease];
    for (size_t i = 0; i < job->constant_count; i++)
        [values setConstantValue:&job->constants[i].bits
                            type:(MTLDataType)job->constants[i].type
                         atIndex:(NSUInteger)job->constants[i].index];
    id<MTLFunction> function =
        [[library newFunctionWithName:[NSString stringWithUTF8String:job->kernel]
                       constantValues:values
                                error:error] autorelease];
    if (!function)
        return nil;
    return [[device newComputePipelineStateWithFunction:function error:error] autorelease];
}

int harness_run(const struct harness_job *job, char *text, size_t size) {
    @autoreleasepool {
        NSError *error = nil;
        id<MTLBuffer> buffers[31] = {nil};
        id<MTLDevice> device = [MTLCreateSystemDefaultDevice() autorelease];
        id<MTLComputePipelineState> pipeline = make_pipeline(device, job, &error);
        if (!pipeline)
            return fail(text, size, error, "no pipeline");
        id<MTLCommandQueue> queue = [[device newCommandQueue] autorelease];
        id<MTLCommandBuffer> commands = [queue commandBuffer];
        id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
        [encoder setComputePipelineState:pipeline];
        for (size_t i = 0; i < job->argument_count; i++) {
            const struct harness_argument *argument = &job->arguments[i];
            NSUInteger index = (NSUInteger)argument->index;
            if (argument->kind == HARNESS_BUFFER) {
                buffers[index] =
                    [[device newBufferWithBytes:argument->data
                                         length:argument->length
                                        options:MTLResourceStorageModeShared] autorelease];
                [encoder setBuffer:buffers[index] offset:0 atIndex:index];
            } else if (argument->kind == HARNESS_BYTES) {
                [encoder setBytes:argument->data length:argument->length atIndex:index];
            } else if (argument->kind == HARNESS_THREADGROUP_MEMORY) {
                [encoder setThreadgroupMemoryLength:argument->length atIndex:index];
            }
        }
        [encoder dispatchThreads:MTLSizeMake(job->grid[0], job->grid[1], job->grid[2])
            threadsPerThreadgroup:MTLSizeMake(job->group[0], job->group[1], job->group[2])];
        [encoder endEncoding];
        [commands commit];
        [commands waitUntilCompleted];
        if (commands.status != MTLCommandBufferStatusCompleted)
            return fail(text, size, commands.error, "the command buffer failed");
        for (size_t i = 0; i < job->argument_count; i++)
            if (job->arguments[i].kind == HARNESS_BUFFER)
                memcpy(job->arguments[i].data, buffers[job->arguments[i].index].contents,
                       job->arguments[i].length);
        return 0;
    }
}
