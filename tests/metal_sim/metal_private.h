/* The classes behind Metal's protocols, as device.m and commands.m see each other. A class is named
 * after its protocol, with Sim in front; reports leave the Sim away. */
#import <Metal/Metal.h>

#import "foundation_private.h"
#include "sim.h"

/* nil, with an NSError unless the fault is a silent one. */
id sim_refuse(NSError **error, NSErrorDomain domain, NSInteger code, const char *text);

@interface SimMTLDevice : NSObject <MTLDevice>
@end

/* All that has a device and a label. */
@interface SimMTLObject : NSObject {
    SimMTLDevice *device;
    NSString *label;
}
- (instancetype)initWithDevice:(SimMTLDevice *)owner;
@property(readonly) id<MTLDevice> device;
@property(nullable, copy, atomic) NSString *label;
@end

@interface SimMTLBuffer : SimMTLObject <MTLBuffer> {
  @public
    struct sim_memory *memory;
    MTLResourceOptions options;
}
- (BOOL)isInFlight;
@end

@interface SimMTLLibrary : SimMTLObject <MTLLibrary> {
  @public
    char *path;
    bool fast_math;
}
@end

@interface SimMTLFunction : SimMTLObject <MTLFunction> {
  @public
    struct sim_function *function;
}
@end

@interface SimMTLComputePipelineState : SimMTLObject <MTLComputePipelineState> {
  @public
    SimMTLFunction *function;
}
@end

@class SimMTLCommandBuffer;

@interface SimMTLCommandQueue : SimMTLObject <MTLCommandQueue> {
  @public
    SimMTLCommandBuffer *oldest, *newest; /* committed, not completed */
}
@end

/* What a committed command buffer does with one buffer. */
struct sim_use {
    SimMTLBuffer *buffer;
    bool writes;
};

@interface SimMTLCommandBuffer : SimMTLObject <MTLCommandBuffer> {
  @public
    SimMTLCommandQueue *queue;
    SimMTLCommandBuffer *next; /* in the queue */
    MTLCommandBufferStatus status;
    BOOL retains, fails, encoding;
    unsigned reads; /* of its status since the commit */
    NSError *error;
    CFTimeInterval started, ended;
    struct sim_dispatch *dispatches;
    struct sim_use *uses;
    id *kept; /* objects that live until completion */
    char **bytes;
    NSUInteger dispatch_count, use_count, kept_count, bytes_count;
}
- (void)keep:(id)object;
- (char *)copyBytes:(const void *)bytes length:(NSUInteger)length;
- (void)add:(const struct sim_dispatch *)dispatch buffers:(SimMTLBuffer *const *)buffers;
@end

@interface SimMTLComputeCommandEncoder : SimMTLObject <MTLComputeCommandEncoder> {
  @public
    SimMTLCommandBuffer *commands;
    SimMTLComputePipelineState *pipeline;
    SimMTLBuffer *buffers[SIM_MAX_BUFFERS];
    struct sim_dispatch current;
    BOOL ended;
}
@end
