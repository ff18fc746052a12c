/* Queues, command buffers and compute encoders: what is recorded, when it runs, and the rules on
 * the way. */
#import "metal_private.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* One GPU: one command buffer at a time, whoever waits. Also guards the queues. */
static pthread_mutex_t gpu = PTHREAD_MUTEX_INITIALIZER;

static CFTimeInterval seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Reports and returns from a method where a rule is broken. */
#define RULE(condition, result, ...)                                                               \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            sim_report(__VA_ARGS__);                                                               \
            return result;                                                                         \
        }                                                                                          \
    } while (0)
#define NOTHING

/* ---- queue ---- */

@implementation SimMTLCommandQueue
- (SimMTLCommandBuffer *)make:(BOOL)retains call:(const char *)call {
    if (sim_fault(call))
        return nil;
    SimMTLCommandBuffer *buffer = [[[SimMTLCommandBuffer alloc] initWithDevice:device] autorelease];
    buffer->queue = [self retain];
    buffer->retains = retains;
    return buffer;
}
- (id<MTLCommandBuffer>)commandBuffer {
    return [self make:YES call:"commandBuffer"];
}
- (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences {
    return [self make:NO call:"commandBufferWithUnretainedReferences"];
}
@end

/* ---- command buffer ---- */

@implementation SimMTLCommandBuffer
- (id<MTLCommandQueue>)commandQueue {
    return queue;
}
- (BOOL)retainedReferences {
    return retains;
}
- (CFTimeInterval)GPUStartTime {
    return started;
}
- (CFTimeInterval)GPUEndTime {
    return ended;
}
- (NSError *)error {
    return error;
}

- (void)keep:(id)object {
    if (!retains)
        return;
    kept = realloc(kept, (kept_count + 1) * sizeof *kept);
    kept[kept_count++] = [object retain];
}
- (char *)copyBytes:(const void *)data length:(NSUInteger)length {
    bytes = realloc(bytes, (bytes_count + 1) * sizeof *bytes);
    /* The end of the block is the end of the argument, and its start is aligned for any type. */
    char *copy = aligned_alloc(256, (length + 255) & ~255ul);
    bytes[bytes_count++] = copy;
    return memcpy(copy, data, length);
}
- (void)use:(SimMTLBuffer *)buffer writes:(bool)writes {
    for (NSUInteger i = 0; i < use_count; i++)
        if (uses[i].buffer == buffer) {
            uses[i].writes |= writes;
            return;
        }
    uses = realloc(uses, (use_count + 1) * sizeof *uses);
    uses[use_count++] = (struct sim_use){buffer, writes};
}
- (void)add:(const struct sim_dispatch *)dispatch buffers:(SimMTLBuffer *const *)buffers {
    const struct sim_kernel *kernel = dispatch->function->kernel;
    dispatches = realloc(dispatches, (dispatch_count + 1) * sizeof *dispatches);
    dispatches[dispatch_count++] = *dispatch;
    for (int i = 0; i < kernel->argument_count; i++) {
        const struct sim_argument *argument = &kernel->arguments[i];
        if (argument->kind == SIM_BUFFER && buffers[argument->index])
            [self use:buffers[argument->index]
                writes:argument->space == 'd' && !kernel->types[i].read_only];
    }
}

- (id<MTLComputeCommandEncoder>)computeCommandEncoder {
    if (sim_fault("computeCommandEncoder"))
        return nil;
    RULE(!status, nil, "computeCommandEncoder: the command buffer is committed");
    RULE(!encoding, nil, "computeCommandEncoder: the encoder before it has not ended");
    SimMTLComputeCommandEncoder *encoder =
        [[[SimMTLComputeCommandEncoder alloc] initWithDevice:device] autorelease];
    encoder->commands = [self retain];
    encoding = YES;
    return encoder;
}

- (void)enqueue {
    RULE(!status, NOTHING, "enqueue: the command buffer is already enqueued or committed");
    status = MTLCommandBufferStatusEnqueued;
}
- (void)commit {
    fails = sim_fault("commit");
    RULE(status < MTLCommandBufferStatusCommitted, NOTHING, "commit: committed a second time");
    sim_counts.command_buffers++;
    if (encoding)
        sim_report("commit: a command encoder has not ended");
    encoding = NO;
    pthread_mutex_lock(&gpu);
    status = MTLCommandBufferStatusCommitted;
    sim_counts.in_flight++;
    for (NSUInteger i = 0; i < use_count; i++)
        sim_flight_begin(uses[i].buffer->memory, uses[i].writes);
    if (queue->newest)
        queue->newest->next = self;
    else
        queue->oldest = self;
    queue->newest = [self retain];
    pthread_mutex_unlock(&gpu);
    if (!sim_settings.status_reads)
        [self complete];
}

/* The lock is held. Objects are let go of later, when it is not. */
- (void)run {
    struct sim_text said = {0};
    started = seconds();
    if (fails && !sim_fault_is_silent())
        sim_text_format(&said, "injected fault in the command buffer");
    bool done = !fails;
    sim_flight_open();
    for (NSUInteger i = 0; i < dispatch_count && done; i++) {
        done = sim_execute(&dispatches[i], &said);
        if (!done)
            sim_report("%s", said.data);
    }
    for (NSUInteger i = 0; i < use_count; i++)
        sim_flight_end(uses[i].buffer->memory, uses[i].writes);
    sim_flight_close();
    ended = seconds();
    if (!done && said.data) {
        NSAutoreleasePool *pool = [NSAutoreleasePool new];
        error = [[NSError errorInDomain:MTLCommandBufferErrorDomain
                                   code:MTLCommandBufferErrorInternal
                                   text:said.data] retain];
        [pool drain];
    }
    free(said.data);
    sim_counts.in_flight -= sim_counts.in_flight > 0; /* a reset may have forgotten it */
    __atomic_store_n(&status, done ? MTLCommandBufferStatusCompleted : MTLCommandBufferStatusError,
                     __ATOMIC_RELEASE);
}
- (void)letGo {
    for (NSUInteger i = 0; i < kept_count; i++)
        [kept[i] release];
    kept_count = use_count = 0;
}
/* Runs the queue up to and including this one. */
- (void)complete {
    SimMTLCommandBuffer *done = nil;
    pthread_mutex_lock(&gpu);
    while (status < MTLCommandBufferStatusCompleted) {
        SimMTLCommandBuffer *first = queue->oldest;
        [first run];
        queue->oldest = first->next;
        if (!queue->oldest)
            queue->newest = nil;
        first->next = done;
        done = first;
    }
    pthread_mutex_unlock(&gpu);
    while (done) {
        SimMTLCommandBuffer *after = done->next;
        done->next = nil;
        [done letGo];
        [done release];
        done = after;
    }
}
- (void)waitUntilCompleted {
    RULE(status >= MTLCommandBufferStatusCommitted, NOTHING,
         "waitUntilCompleted: the command buffer is not committed");
    [self complete];
}
- (MTLCommandBufferStatus)status {
    MTLCommandBufferStatus now = __atomic_load_n(&status, __ATOMIC_ACQUIRE);
    if (now == MTLCommandBufferStatusCommitted && ++reads >= sim_settings.status_reads)
        [self complete];
    return status;
}

- (void)dealloc {
    [self letGo];
    for (NSUInteger i = 0; i < bytes_count; i++)
        free(bytes[i]);
    free(bytes);
    free(kept);
    free(uses);
    free(dispatches);
    [error release];
    [queue release];
    [super dealloc];
}
@end

/* ---- encoder ---- */

@implementation SimMTLComputeCommandEncoder

#define OPEN(call)                                                                                 \
    RULE(!ended && !commands->status, NOTHING, "%s: the encoder is used after %s", call,           \
         ended ? "endEncoding" : "the command buffer's commit")
#define INDEX(call) RULE(index < SIM_MAX_BUFFERS, NOTHING, "%s index %lu is beyond 30", call, index)

- (void)setComputePipelineState:(id<MTLComputePipelineState>)state {
    OPEN("setComputePipelineState:");
    RULE(state, NOTHING, "setComputePipelineState: the pipeline is nil");
    pipeline = (SimMTLComputePipelineState *)state;
    [commands keep:pipeline];
    current.function = pipeline->function->function;
}
- (void)setBytes:(const void *)bytes length:(NSUInteger)length atIndex:(NSUInteger)index {
    OPEN("setBytes:length:atIndex:");
    INDEX("setBytes:length:atIndex:");
    RULE(length && length <= SIM_MAX_SET_BYTES, NOTHING,
         "setBytes:length:atIndex: length %lu is not within 1 to 4096", length);
    buffers[index] = nil;
    current.buffers[index] = (struct sim_binding){
        .base = [commands copyBytes:bytes length:length],
        .length = length,
        .bound = true,
        .from_bytes = true,
        .fresh = true,
    };
}
- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index {
    OPEN("setBuffer:offset:atIndex:");
    INDEX("setBuffer:offset:atIndex:");
    SimMTLBuffer *set = (SimMTLBuffer *)buffer;
    buffers[index] = nil;
    current.buffers[index] = (struct sim_binding){.bound = false};
    if (!set)
        return;
    RULE(offset < set->memory->length, NOTHING,
         "setBuffer:offset:atIndex: offset %lu is not within the buffer's %zu bytes", offset,
         set->memory->length);
    [commands keep:set];
    buffers[index] = set;
    current.buffers[index] = (struct sim_binding){
        .base = set->memory->base,
        .length = set->memory->length,
        .offset = offset,
        .bound = true,
        .fresh = true,
        .memory = set->memory,
    };
}
- (void)setBufferOffset:(NSUInteger)offset atIndex:(NSUInteger)index {
    OPEN("setBufferOffset:atIndex:");
    INDEX("setBufferOffset:atIndex:");
    RULE(buffers[index] && offset < current.buffers[index].length, NOTHING,
         "setBufferOffset:atIndex: no buffer at index %lu has an offset %lu", index, offset);
    current.buffers[index].offset = offset;
    current.buffers[index].fresh = true;
}
- (void)setThreadgroupMemoryLength:(NSUInteger)length atIndex:(NSUInteger)index {
    OPEN("setThreadgroupMemoryLength:atIndex:");
    INDEX("setThreadgroupMemoryLength:atIndex:");
    RULE(length % 16 == 0, NOTHING,
         "setThreadgroupMemoryLength:atIndex: %lu is not a multiple of 16", length);
    current.threadgroup_memory[index] = length;
}
- (void)memoryBarrierWithScope:(MTLBarrierScope)scope {
    (void)scope; /* dispatches run one after another */
    OPEN("memoryBarrierWithScope:");
}

/* The grid in threads; what both kinds of dispatch check. */
- (void)dispatch:(const uint64_t *)grid group:(MTLSize)group call:(const char *)call {
    NSUInteger threads = 0, memory = 0, most = sim_settings.max_total_threads;
    OPEN(call);
    RULE(pipeline, NOTHING, "%s: no pipeline is set", call);
    RULE(group.width && group.height && group.depth, NOTHING, "%s: an empty threadgroup", call);
    RULE(grid[0] && grid[1] && grid[2], NOTHING, "%s: an empty grid", call);
    RULE(group.width <= most && group.height <= most && group.depth <= most &&
             (threads = group.width * group.height * group.depth) <= most,
         NOTHING, "%s: a threadgroup of %lu x %lu x %lu threads, the pipeline takes at most %lu",
         call, group.width, group.height, group.depth, most);
    for (int i = 0; i < 3; i++)
        RULE(grid[i] <= UINT32_MAX, NOTHING, "%s: a grid of %lu threads in one dimension", call,
             grid[i]);
    for (int i = 0; i < SIM_MAX_BUFFERS; i++)
        memory += current.threadgroup_memory[i];
    RULE(memory <= SIM_MAX_THREADGROUP_MEMORY, NOTHING,
         "%s: %lu bytes of threadgroup memory, the device has 32768", call, memory);
    uint32_t sizes[3] = {(uint32_t)group.width, (uint32_t)group.height, (uint32_t)group.depth};
    for (int i = 0; i < 3; i++) {
        current.grid[i] = (uint32_t)grid[i];
        current.group[i] = sizes[i];
    }
    [commands add:&current buffers:buffers];
    for (int i = 0; i < SIM_MAX_BUFFERS; i++)
        current.buffers[i].fresh = false;
}
- (void)dispatchThreadgroups:(MTLSize)groups threadsPerThreadgroup:(MTLSize)group {
    const uint64_t grid[3] = {groups.width * group.width, groups.height * group.height,
                              groups.depth * group.depth};
    [self dispatch:grid group:group call:"dispatchThreadgroups:threadsPerThreadgroup:"];
}
- (void)dispatchThreads:(MTLSize)threads threadsPerThreadgroup:(MTLSize)group {
    const uint64_t grid[3] = {threads.width, threads.height, threads.depth};
    [self dispatch:grid group:group call:"dispatchThreads:threadsPerThreadgroup:"];
}

- (void)endEncoding {
    OPEN("endEncoding");
    ended = YES;
    commands->encoding = NO;
}
- (void)dealloc {
    if (!ended && commands)
        sim_report("an MTLComputeCommandEncoder was freed without endEncoding");
    [commands release];
    [super dealloc];
}
@end
