/* The device and what it makes: buffers, libraries, functions, pipelines. */
#import "metal_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

NSErrorDomain const MTLCommandBufferErrorDomain = @"MTLCommandBufferErrorDomain";
NSErrorDomain const MTLLibraryErrorDomain = @"MTLLibraryErrorDomain";

int sim_system_is_older(const char *platforms) {
    int major = 0, minor = 0;
    const char *mac = strstr(platforms, "macOS");
    if (mac)
        sscanf(mac, "macOS %d.%d", &major, &minor);
    return mac && (sim_settings.system_major < major ||
                   (sim_settings.system_major == major && sim_settings.system_minor < minor));
}

id sim_refuse(NSError **error, NSErrorDomain domain, NSInteger code, const char *text) {
    if (error && text)
        *error = [NSError errorInDomain:domain code:code text:text];
    return nil;
}

/* The injected fault, as the error of a call named so. */
static id refuse_fault(NSError **error, const char *call) {
    char text[128];
    snprintf(text, sizeof text, "injected fault in %s", call);
    return sim_refuse(error, MTLLibraryErrorDomain, MTLLibraryErrorInternal,
                      sim_fault_is_silent() ? NULL : text);
}

/* ---- classes that the caller makes ---- */

@implementation MTLCompileOptions
- (instancetype)init {
    sim_fast_math = YES;
    sim_math_mode = MTLMathModeFast;
    sim_language = MTLLanguageVersion3_0;
    return self;
}
- (BOOL)fastMathEnabled {
    return sim_fast_math;
}
- (void)setFastMathEnabled:(BOOL)enabled {
    sim_fast_math = enabled;
    sim_math_mode = enabled ? MTLMathModeFast : MTLMathModeSafe;
}
- (MTLMathMode)mathMode {
    return sim_math_mode;
}
- (void)setMathMode:(MTLMathMode)mode {
    if (sim_system_is_older("macOS 15.0"))
        sim_report("MTLCompileOptions: mathMode needs macOS 15.0, the simulated system is %d.%d",
                   sim_settings.system_major, sim_settings.system_minor);
    sim_math_mode = mode;
    sim_fast_math = mode != MTLMathModeSafe;
}
- (MTLMathFloatingPointFunctions)mathFloatingPointFunctions {
    return sim_functions;
}
- (void)setMathFloatingPointFunctions:(MTLMathFloatingPointFunctions)functions {
    if (sim_system_is_older("macOS 15.0"))
        sim_report("MTLCompileOptions: mathFloatingPointFunctions needs macOS 15.0");
    sim_functions = functions;
}
- (BOOL)respondsToSelector:(SEL)selector {
    BOOL is_new =
        !strncmp(sel_getName(selector), "setMath", 7) || !strncmp(sel_getName(selector), "math", 4);
    return (!is_new || !sim_system_is_older("macOS 15.0")) && [super respondsToSelector:selector];
}
- (MTLLanguageVersion)languageVersion {
    return sim_language;
}
- (void)setLanguageVersion:(MTLLanguageVersion)version {
    sim_language = version;
}
- (BOOL)preserveInvariance {
    return sim_preserve_invariance;
}
- (void)setPreserveInvariance:(BOOL)preserve {
    sim_preserve_invariance = preserve;
}
@end

static size_t size_of(MTLDataType type) {
    switch (type) {
    case MTLDataTypeBool:
    case MTLDataTypeChar:
    case MTLDataTypeUChar:
        return 1;
    case MTLDataTypeHalf:
    case MTLDataTypeShort:
    case MTLDataTypeUShort:
        return 2;
    case MTLDataTypeFloat:
    case MTLDataTypeInt:
    case MTLDataTypeUInt:
        return 4;
    case MTLDataTypeLong:
    case MTLDataTypeULong:
        return 8;
    default:
        return 0;
    }
}

@implementation MTLFunctionConstantValues
- (void)setConstantValue:(const void *)value type:(MTLDataType)type atIndex:(NSUInteger)index {
    if (!size_of(type) || index > 65535) {
        sim_report("MTLFunctionConstantValues: type %lu at index %lu is not known",
                   (unsigned long)type, index);
        return;
    }
    sim_values = realloc(sim_values, (sim_count + 1) * sizeof *sim_values);
    struct sim_constant_value *added = &sim_values[sim_count++];
    *added = (struct sim_constant_value){(unsigned)index, (unsigned)type, 0};
    memcpy(&added->bits, value, size_of(type));
}
- (void)reset {
    sim_count = 0;
}
- (void)dealloc {
    free(sim_values);
    [super dealloc];
}
@end

/* ---- what all of Metal's objects have ---- */

@implementation SimMTLObject
- (instancetype)initWithDevice:(SimMTLDevice *)owner {
    device = [owner retain];
    return self;
}
- (id<MTLDevice>)device {
    return device;
}
- (NSString *)label {
    return label;
}
- (void)setLabel:(NSString *)text {
    [text retain];
    [label release];
    label = text;
}
- (void)dealloc {
    [label release];
    [device release];
    [super dealloc];
}
@end

/* ---- buffers ---- */

@implementation SimMTLBuffer
- (NSUInteger)length {
    return memory->length;
}
- (void *)contents {
    return self.storageMode == MTLStorageModePrivate ? NULL : memory->base;
}
- (MTLResourceOptions)resourceOptions {
    return options;
}
- (MTLCPUCacheMode)cpuCacheMode {
    return (MTLCPUCacheMode)(options & 15);
}
- (MTLStorageMode)storageMode {
    return (MTLStorageMode)(options >> 4 & 15);
}
- (BOOL)isInFlight {
    return memory->readers || memory->writers;
}
- (void)dealloc {
    if (memory && self.isInFlight)
        sim_report("an MTLBuffer of %zu bytes was freed while a command buffer uses it",
                   memory->length); /* which stays, as the GPU will use it */
    else if (memory)
        sim_memory_free(memory);
    [super dealloc];
}
@end

/* ---- libraries, functions, pipelines ---- */

@implementation SimMTLFunction
- (NSString *)name {
    return [NSString stringWithUTF8String:function->kernel->name];
}
- (void)dealloc {
    if (function)
        sim_unload(function);
    [super dealloc];
}
@end

@implementation SimMTLLibrary
- (NSArray<NSString *> *)functionNames {
    struct sim_text names = {0};
    id strings[64];
    NSUInteger count = 0;
    sim_kernel_names(path, &names);
    char *rest = names.data;
    for (char *name; (name = strsep(&rest, "\n")) && *name && count < 64;)
        strings[count++] = [NSString stringWithUTF8String:name];
    free(names.data);
    return [[NSArray newWithObjects:strings count:count] autorelease];
}
- (id<MTLFunction>)make:(NSString *)name
              constants:(MTLFunctionConstantValues *)values
                  error:(NSError **)error
                   call:(const char *)call {
    struct sim_text said = {0};
    if (sim_fault(call))
        return refuse_fault(error, call);
    if (!name) {
        sim_report("%s: the name is nil", call);
        return nil;
    }
    struct sim_function *loaded =
        sim_load(path, name.UTF8String, fast_math, values ? values->sim_values : NULL,
                 values ? values->sim_count : 0, &said);
    if (!loaded) {
        sim_refuse(error, MTLLibraryErrorDomain, MTLLibraryErrorFunctionNotFound, said.data);
        free(said.data);
        return nil;
    }
    SimMTLFunction *made = [[SimMTLFunction alloc] initWithDevice:device];
    made->function = loaded;
    return made;
}
- (id<MTLFunction>)newFunctionWithName:(NSString *)name {
    return [self make:name constants:nil error:NULL call:"newFunctionWithName:"];
}
- (id<MTLFunction>)newFunctionWithName:(NSString *)name
                        constantValues:(MTLFunctionConstantValues *)values
                                 error:(NSError **)error {
    return [self make:name
            constants:values
                error:error
                 call:"newFunctionWithName:constantValues:error:"];
}
- (void)dealloc {
    free(path);
    [super dealloc];
}
@end

@implementation SimMTLComputePipelineState
- (NSUInteger)maxTotalThreadsPerThreadgroup {
    return sim_settings.max_total_threads;
}
- (NSUInteger)threadExecutionWidth {
    return SIM_SIMD_WIDTH;
}
- (NSUInteger)staticThreadgroupMemoryLength {
    return sim_threadgroup_bytes(function->function);
}
- (void)dealloc {
    [function release];
    [super dealloc];
}
@end

/* ---- the device ---- */

@implementation SimMTLDevice
- (NSString *)name {
    return [NSString stringWithUTF8String:"Apple GPU (simulated)"];
}
- (uint64_t)registryID {
    return 0x100000001;
}
- (MTLSize)maxThreadsPerThreadgroup {
    return MTLSizeMake(SIM_MAX_THREADS, SIM_MAX_THREADS, SIM_MAX_THREADS);
}
- (BOOL)isLowPower {
    return NO;
}
- (BOOL)isHeadless {
    return NO;
}
- (BOOL)isRemovable {
    return NO;
}
- (BOOL)hasUnifiedMemory {
    return sim_settings.apple_family > 0;
}
- (uint64_t)recommendedMaxWorkingSetSize {
    return (uint64_t)16 << 30;
}
- (NSUInteger)currentAllocatedSize {
    return sim_memory_total();
}
- (NSUInteger)maxThreadgroupMemoryLength {
    return SIM_MAX_THREADGROUP_MEMORY;
}
- (NSUInteger)maxBufferLength {
    return sim_settings.max_buffer_length;
}
- (BOOL)supportsFamily:(MTLGPUFamily)family {
    int apple = sim_settings.apple_family;
    if (family >= MTLGPUFamilyApple1 && family < MTLGPUFamilyApple1 + 100)
        return family - 1000 <= apple;
    if (family == MTLGPUFamilyMetal3)
        return apple >= 7 && sim_settings.system_major >= 13;
    return family == MTLGPUFamilyMac2 ||
           (family >= MTLGPUFamilyCommon1 && family <= MTLGPUFamilyCommon3);
}

- (id<MTLCommandQueue>)newCommandQueue {
    return sim_fault("newCommandQueue") ? nil : [[SimMTLCommandQueue alloc] initWithDevice:self];
}
- (id<MTLCommandQueue>)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)count {
    return count ? [self newCommandQueue] : nil;
}

- (SimMTLBuffer *)wrap:(struct sim_memory *)memory options:(MTLResourceOptions)options {
    SimMTLBuffer *buffer = [[SimMTLBuffer alloc] initWithDevice:self];
    buffer->memory = memory;
    buffer->options = options;
    return buffer;
}
/* Is this a length and are these options that a buffer may have? */
- (BOOL)accepts:(NSUInteger)length options:(MTLResourceOptions)options call:(const char *)call {
    const char *wrong = NULL;
    if (!length)
        wrong = "the length is 0";
    else if (length > sim_settings.max_buffer_length)
        wrong = "the length is above maxBufferLength";
    else if ((options >> 4 & 15) != MTLStorageModeShared)
        wrong = "the simulator only knows shared storage";
    if (wrong)
        sim_report("%s: %s (length %lu)", call, wrong, length);
    return !wrong;
}
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options {
    const char *call = "newBufferWithLength:options:";
    if (sim_fault(call) || ![self accepts:length options:options call:call])
        return nil;
    struct sim_memory *memory = sim_memory_new(length);
    return memory ? [self wrap:memory options:options] : nil;
}
- (id<MTLBuffer>)newBufferWithBytes:(const void *)pointer
                             length:(NSUInteger)length
                            options:(MTLResourceOptions)options {
    id<MTLBuffer> buffer = [self newBufferWithLength:length options:options];
    if (buffer)
        memcpy(buffer.contents, pointer, length);
    return buffer;
}
- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void *)pointer
                                   length:(NSUInteger)length
                                  options:(MTLResourceOptions)options
                              deallocator:(id)deallocator {
    const char *call = "newBufferWithBytesNoCopy:length:options:deallocator:", *wrong = NULL;
    if (sim_fault(call) || ![self accepts:length options:options call:call])
        return nil;
    if ((uintptr_t)pointer % SIM_PAGE)
        wrong = "the pointer is not aligned to a page of 16384 bytes";
    else if (length % SIM_PAGE)
        wrong = "the length is not a multiple of a page of 16384 bytes";
    else if (deallocator)
        wrong = "the simulator only knows a nil deallocator";
    struct sim_memory *memory = wrong ? NULL : sim_memory_wrap(pointer, length);
    if (!wrong && !memory)
        wrong = "the memory is not mapped";
    if (wrong) {
        sim_report("%s: %s (pointer %p, length %lu)", call, wrong, pointer, length);
        return nil;
    }
    return [self wrap:memory options:options];
}

- (id<MTLLibrary>)newLibraryWithSource:(NSString *)source
                               options:(MTLCompileOptions *)options
                                 error:(NSError **)error {
    struct sim_text said = {0};
    if (sim_fault("newLibraryWithSource:options:error:"))
        return refuse_fault(error, "newLibraryWithSource:options:error:");
    if (!source) {
        sim_report("newLibraryWithSource:options:error: the source is nil");
        return nil;
    }
    unsigned long language = options ? options.languageVersion : MTLLanguageVersion3_0;
    struct sim_compile_options chosen = {
        .language = (int)((language >> 16) * 100 + (language & 0xffff) * 10),
        .fast_math = !options || options->sim_fast_math,
    };
    char *path = sim_compile(source.UTF8String, &chosen, &said);
    if (!path) {
        sim_refuse(error, MTLLibraryErrorDomain, MTLLibraryErrorCompileFailure, said.data);
        free(said.data);
        return nil;
    }
    SimMTLLibrary *library = [[SimMTLLibrary alloc] initWithDevice:self];
    library->path = path;
    library->fast_math = chosen.fast_math;
    return library;
}
- (id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)function
                                                             error:(NSError **)error {
    const char *call = "newComputePipelineStateWithFunction:error:";
    if (sim_fault(call))
        return refuse_fault(error, call);
    if (!function) {
        sim_report("%s: the function is nil", call);
        return nil;
    }
    SimMTLComputePipelineState *pipeline = [[SimMTLComputePipelineState alloc] initWithDevice:self];
    pipeline->function = [(SimMTLFunction *)function retain];
    return pipeline;
}
@end

id<MTLDevice> MTLCreateSystemDefaultDevice(void) {
    if (sim_fault("MTLCreateSystemDefaultDevice") || !sim_settings.device_present)
        return nil;
    return [SimMTLDevice new];
}

NSArray<id<MTLDevice>> *MTLCopyAllDevices(void) {
    if (sim_fault("MTLCopyAllDevices") || !sim_settings.device_present)
        return [NSArray newWithObjects:NULL count:0];
    id device = [SimMTLDevice new];
    NSArray *devices = [NSArray newWithObjects:&device count:1];
    [device release];
    return devices;
}
