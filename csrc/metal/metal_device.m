// The Metal device. Manual retain/release; an autorelease pool around every entry.
//
// Kernels are compiled at run time from the embedded source, once for each shader, with safe
// mathematics. Buffers are shared storage over the core's own pages, without a copy. Work is
// submitted one command buffer at a time, so that an interrupt is noticed between two of them.

#include "buffer.h"
#include "device.h"
#include "encoder.h"
#include "status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

static id<MTLDevice> gpu;
static id<MTLCommandQueue> queue;

static mo_status fail(const char *what, const char *name, NSError *error) {
    const char *text = error ? [[error localizedDescription] UTF8String] : NULL;
    return mo_fail(MO_DEVICE_ERROR, "Metal: %s '%s': %s", what, name,
                   text ? text : "no reason was given");
}

static mo_status check_process(void) {
    if (mo_in_forked_child())
        return mo_fail(MO_DEVICE_ERROR, "Metal: a forked process cannot use the GPU; use device "
                                        "'cpu', or start processes by spawn");
    return MO_OK;
}

// ---- The device --------------------------------------------------------------------------------

// The system's default GPU; or the first of all, since a program that shows no windows is not
// always given a default.
static id<MTLDevice> find_gpu(void) {
    id<MTLDevice> device = MTLCreateSystemDefaultDevice();
    if (device)
        return device;
    NSArray *devices = MTLCopyAllDevices();
    if ([devices count] > 0)
        device = [[devices objectAtIndex:0] retain];
    [devices release];
    return device;
}

static bool probe(char *why_not, size_t size) {
    @autoreleasepool {
        if (mo_in_forked_child()) {
            snprintf(why_not, size, "a forked process cannot use Metal");
            return false;
        }
        id<MTLDevice> device = find_gpu();
        if (!device) {
            snprintf(why_not, size, "this machine has no Metal device");
            return false;
        }
        if (![device supportsFamily:MTLGPUFamilyApple7]) {
            snprintf(why_not, size, "%s is older than Apple7 (M1), or no Apple GPU",
                     [[device name] UTF8String]);
            [device release];
            return false;
        }
        queue = [device newCommandQueue];
        if (!queue) {
            snprintf(why_not, size, "%s gave no command queue", [[device name] UTF8String]);
            [device release];
            return false;
        }
        gpu = device;
        return true;
    }
}

static void describe(char *text, size_t size) {
    @autoreleasepool {
        snprintf(text, size, "%s", mo_in_forked_child() ? "GPU" : [[gpu name] UTF8String]);
    }
}

// ---- Pipelines ---------------------------------------------------------------------------------

// The compiled shaders, a library each. Guarded by the registry, which makes one pipeline at a
// time.
typedef struct compiled_shader {
    const char *name;
    id<MTLLibrary> library;
    struct compiled_shader *next;
} compiled_shader;

static compiled_shader *compiled_shaders;

static MTLCompileOptions *compile_options(void) {
    MTLCompileOptions *options = [[[MTLCompileOptions alloc] init] autorelease];
    [options setLanguageVersion:MTLLanguageVersion2_4];
    // Without these two, sums are reordered and contracted, and NaN and infinity taken for
    // impossible.
#if !defined(__MAC_OS_X_VERSION_MAX_ALLOWED) || __MAC_OS_X_VERSION_MAX_ALLOWED >= 150000
    if (@available(macOS 15.0, *))
        [options setMathMode:MTLMathModeSafe];
    else
#endif // an older SDK does not know it, and macOS 15 still heeds what follows
        [options setFastMathEnabled:NO];
    return options;
}

static mo_status compile(const mo_kernel *kernel, compiled_shader **result) {
    const char *source = mo_shader_source(kernel->shader);
    NSError *error = nil;
    NSString *text = source ? [NSString stringWithUTF8String:source] : nil;
    if (!text)
        return fail("no source of kernel", kernel->name, nil);
    MTLCompileOptions *options = compile_options();
    if (!options) // nil would mean the defaults, which are not safe
        return fail("no compile options for kernel", kernel->name, nil);
    compiled_shader *shader = calloc(1, sizeof *shader);
    if (!shader)
        return mo_fail_memory(sizeof *shader);
    shader->library = [gpu newLibraryWithSource:text options:options error:&error];
    if (!shader->library) {
        free(shader);
        return fail("could not compile kernel", kernel->name, error);
    }
    shader->name = kernel->shader;
    shader->next = compiled_shaders;
    compiled_shaders = shader;
    *result = shader;
    return MO_OK;
}

static mo_status library_of(const mo_kernel *kernel, id<MTLLibrary> *library) {
    compiled_shader *shader = compiled_shaders;
    while (shader && strcmp(shader->name, kernel->shader) != 0)
        shader = shader->next;
    const mo_status status = shader ? MO_OK : compile(kernel, &shader);
    if (status == MO_OK)
        *library = shader->library;
    return status;
}

static mo_status make_state(const mo_kernel *kernel, id<MTLLibrary> library,
                            MTLFunctionConstantValues *values, id<MTLComputePipelineState> *state) {
    NSError *error = nil;
    NSString *name = [NSString stringWithUTF8String:kernel->name];
    id<MTLFunction> function =
        name ? [library newFunctionWithName:name constantValues:values error:&error] : nil;
    if (!function)
        return fail("no function for kernel", kernel->name, error);
    *state = [gpu newComputePipelineStateWithFunction:function error:&error];
    [function release];
    return *state ? MO_OK : fail("no pipeline for kernel", kernel->name, error);
}

static mo_status make_pipeline(const mo_kernel *kernel, const mo_function_constant *constants,
                               size_t n_constants, void **state) {
    mo_status status = check_process();
    if (status != MO_OK)
        return status;
    @autoreleasepool {
        id<MTLLibrary> library = nil;
        id<MTLComputePipelineState> pipeline = nil;
        status = library_of(kernel, &library);
        if (status != MO_OK)
            return status;
        MTLFunctionConstantValues *values = [[[MTLFunctionConstantValues alloc] init] autorelease];
        if (!values)
            return fail("no function constants for kernel", kernel->name, nil);
        for (size_t i = 0; i < n_constants; i++) {
            const int value = constants[i].value;
            [values setConstantValue:&value type:MTLDataTypeInt atIndex:constants[i].index];
        }
        status = make_state(kernel, library, values, &pipeline);
        *state = pipeline;
        return status;
    }
}

// ---- Memory ------------------------------------------------------------------------------------

static id<MTLBuffer> share(void *memory, size_t size) {
    return [gpu newBufferWithBytesNoCopy:memory
                                  length:size
                                 options:MTLResourceStorageModeShared
                             deallocator:nil];
}

static mo_status no_buffer(size_t size) {
    return mo_fail(MO_OUT_OF_MEMORY, "Metal: no buffer of %zu bytes could be made", size);
}

static size_t whole_pages(size_t size) {
    return (size + MO_PAGE - 1) / MO_PAGE * MO_PAGE;
}

// Always so on macOS on arm64; smaller pages can begin elsewhere.
static bool is_page_aligned(const void *memory) {
    return (uintptr_t)memory % MO_PAGE == 0;
}

static mo_status wrap(const mo_buffer *buffer, void **wrapper) {
    mo_status status = check_process();
    void *memory = mo_buffer_contents(buffer);
    const size_t size = whole_pages(mo_buffer_capacity(buffer));
    *wrapper = NULL;
    if (status != MO_OK || !mo_buffer_has_pages(buffer) || !is_page_aligned(memory))
        return status;
    @autoreleasepool {
        if (size > [gpu maxBufferLength]) // in parts, when they are used
            return MO_OK;
        *wrapper = share(memory, size);
        return *wrapper ? MO_OK : no_buffer(size);
    }
}

static bool unwrap(void *wrapper) {
    if (mo_in_forked_child()) // the driver is the parent's; so is what it holds
        return true;
    @autoreleasepool {
        [(id<MTLBuffer>)wrapper release];
    }
    return true;
}

// ---- Work --------------------------------------------------------------------------------------

// A buffer whose memory cannot be shared as it is, for as long as the work takes: a copy of it, or
// a part of it that is not too large.
typedef struct stand_in {
    mo_buffer *original;
    mo_buffer *copy;     // NULL: a part
    bool filled;         // the copy has the contents of the original
    id<MTLBuffer> part;  // nil: a copy
    size_t offset, size; // of the part in the original
    struct stand_in *next;
} stand_in;

typedef struct work {
    const mo_dispatch *dispatches;
    size_t n;
    size_t next; // of those that have not been submitted
    stand_in *stand_ins;
    id<MTLCommandBuffer> submitted; // nil: none is in flight
} work;

static size_t n_arguments(const mo_dispatch *dispatch) {
    return dispatch->pipeline->kernel->n_arguments;
}

static mo_argument argument_of(const mo_dispatch *dispatch, size_t index) {
    return dispatch->pipeline->kernel->arguments[index];
}

static stand_in *find_stand_in(const work *w, const mo_binding *binding) {
    for (stand_in *s = w->stand_ins; s; s = s->next)
        if (s->original == binding->buffer &&
            (s->copy || (s->offset == binding->offset && s->size == binding->size)))
            return s;
    return NULL;
}

static mo_status too_large(size_t size) {
    return mo_fail(MO_DEVICE_ERROR,
                   "Metal: %zu bytes in one piece are more than this GPU takes, %zu; slice the "
                   "matrix or the array by rows",
                   size, (size_t)[gpu maxBufferLength]);
}

static mo_status share_part(const mo_binding *binding, stand_in *s) {
    const uintptr_t start = (uintptr_t)mo_buffer_contents(binding->buffer) + binding->offset;
    const uintptr_t page = start / MO_PAGE * MO_PAGE;
    const size_t length = whole_pages(start + binding->size - page);
    if (length > [gpu maxBufferLength])
        return too_large(binding->size);
    s->part = share((void *)page, length);
    return s->part ? MO_OK : no_buffer(length);
}

// Memory of our own for a copy, without its contents yet.
static mo_status make_copy(stand_in *s) {
    void *wrapper;
    const size_t size = mo_buffer_size(s->original);
    if (whole_pages(size) > [gpu maxBufferLength])
        return too_large(size);
    mo_status status = mo_buffer_alloc(size, &s->copy);
    if (status == MO_OK)
        status = mo_buffer_wrapper(s->copy, &mo_metal_device, &wrapper);
    if (status == MO_OK && !wrapper) // its pages are more than those of the size
        status = too_large(size);
    return status;
}

static void free_stand_in(stand_in *s) {
    mo_buffer_release(s->copy);
    [s->part release];
    free(s);
}

static mo_status add_stand_in(work *w, const mo_binding *binding, stand_in **result) {
    stand_in *s = calloc(1, sizeof *s);
    if (!s)
        return mo_fail_memory(sizeof *s);
    *s = (stand_in){.original = binding->buffer, .offset = binding->offset, .size = binding->size};
    const bool has_pages = mo_buffer_has_pages(binding->buffer) &&
                           is_page_aligned(mo_buffer_contents(binding->buffer));
    const mo_status status = has_pages ? share_part(binding, s) : make_copy(s);
    if (status != MO_OK) {
        free_stand_in(s);
        return status;
    }
    s->next = w->stand_ins;
    w->stand_ins = s;
    *result = s;
    return MO_OK;
}

// Gives one buffer argument something that the GPU can use.
static mo_status prepare_argument(work *w, const mo_binding *binding, mo_argument argument) {
    void *wrapper;
    mo_status status = mo_buffer_wrapper(binding->buffer, &mo_metal_device, &wrapper);
    if (status != MO_OK || wrapper)
        return status;
    stand_in *s = find_stand_in(w, binding);
    if (!s)
        status = add_stand_in(w, binding, &s);
    if (status == MO_OK && s->copy && !s->filled && argument.kind == MO_ARGUMENT_INPUT) {
        memcpy(mo_buffer_contents(s->copy), mo_buffer_contents(s->original),
               mo_buffer_size(s->original));
        mo_count_copy(mo_buffer_size(s->original), 0);
        s->filled = true;
    }
    return status;
}

static mo_status prepare(work *w) {
    mo_status status = MO_OK;
    for (size_t i = 0; i < w->n && status == MO_OK; i++)
        for (size_t j = 0; j < n_arguments(&w->dispatches[i]) && status == MO_OK; j++)
            if (w->dispatches[i].arguments[j].buffer)
                status = prepare_argument(w, &w->dispatches[i].arguments[j],
                                          argument_of(&w->dispatches[i], j));
    return status;
}

static void bind(const work *w, id<MTLComputeCommandEncoder> encoder, const mo_binding *binding,
                 size_t index) {
    if (!binding->buffer) {
        [encoder setBytes:binding->bytes length:binding->n_bytes atIndex:index];
        return;
    }
    const stand_in *s = find_stand_in(w, binding);
    void *wrapper = NULL;
    size_t offset = binding->offset;
    if (s && s->part) {
        wrapper = s->part;
        offset = ((uintptr_t)mo_buffer_contents(binding->buffer) + offset) % MO_PAGE;
    } else {
        mo_buffer_wrapper(s ? s->copy : binding->buffer, &mo_metal_device, &wrapper);
    }
    [encoder setBuffer:(id<MTLBuffer>)wrapper offset:offset atIndex:index];
}

static MTLSize metal_size(mo_size size) {
    return MTLSizeMake(size.x, size.y, size.z);
}

static void encode(const work *w, id<MTLComputeCommandEncoder> encoder,
                   const mo_dispatch *dispatch) {
    [encoder setComputePipelineState:(id<MTLComputePipelineState>)dispatch->pipeline->state];
    for (size_t i = 0; i < n_arguments(dispatch); i++)
        bind(w, encoder, &dispatch->arguments[i], i);
    if (dispatch->by_threadgroups)
        [encoder dispatchThreadgroups:metal_size(dispatch->grid)
                threadsPerThreadgroup:metal_size(dispatch->threads_per_threadgroup)];
    else
        [encoder dispatchThreads:metal_size(dispatch->grid)
            threadsPerThreadgroup:metal_size(dispatch->threads_per_threadgroup)];
}

// Submits the next command buffer: everything up to the next that starts another.
static mo_status submit(work *w) {
    const char *kernel = w->dispatches[w->next].pipeline->kernel->name;
    id<MTLCommandBuffer> buffer = [queue commandBuffer];
    id<MTLComputeCommandEncoder> encoder = [buffer computeCommandEncoder];
    if (!encoder)
        return fail("no command buffer for kernel", kernel, nil);
    do
        encode(w, encoder, &w->dispatches[w->next++]);
    while (w->next < w->n && !w->dispatches[w->next].starts_command_buffer);
    [encoder endEncoding];
    [buffer commit];
    w->submitted = [buffer retain];
    return MO_OK;
}

static mo_status wait_for_submitted(work *w) {
    const char *kernel = w->dispatches[w->next - 1].pipeline->kernel->name;
    [w->submitted waitUntilCompleted];
    const mo_status status = [w->submitted status] == MTLCommandBufferStatusCompleted
                                 ? MO_OK
                                 : fail("the command buffer failed, the last kernel in it", kernel,
                                        [w->submitted error]);
    [w->submitted release];
    w->submitted = nil;
    return status;
}

// Moves what kernels wrote into copies to where it belongs.
static void copy_back(const work *w) {
    for (size_t i = 0; i < w->n; i++)
        for (size_t j = 0; j < n_arguments(&w->dispatches[i]); j++) {
            const mo_binding *binding = &w->dispatches[i].arguments[j];
            if (argument_of(&w->dispatches[i], j).kind != MO_ARGUMENT_OUTPUT)
                continue;
            const stand_in *s = find_stand_in(w, binding);
            if (s && s->copy) {
                memcpy((char *)mo_buffer_contents(binding->buffer) + binding->offset,
                       (char *)mo_buffer_contents(s->copy) + binding->offset, binding->size);
                mo_count_copy(0, binding->size);
            }
        }
}

static void free_work(work *w) {
    while (w->stand_ins) {
        stand_in *s = w->stand_ins;
        w->stand_ins = s->next;
        free_stand_in(s);
    }
    free(w);
}

static mo_status commit(const mo_dispatch *dispatches, size_t n, void **in_flight) {
    *in_flight = NULL;
    mo_status status = check_process();
    if (status != MO_OK || n == 0)
        return status;
    work *w = calloc(1, sizeof *w);
    if (!w)
        return mo_fail_memory(sizeof *w);
    *w = (work){.dispatches = dispatches, .n = n};
    @autoreleasepool {
        status = prepare(w);
        if (status == MO_OK)
            status = submit(w);
        if (status != MO_OK)
            free_work(w);
        else
            *in_flight = w;
    }
    return status;
}

static mo_status finish(void *in_flight, bool discard) {
    work *w = in_flight;
    mo_status status = check_process();
    if (status != MO_OK) // what is in flight belongs to the parent
        return status;
    @autoreleasepool {
        status = wait_for_submitted(w);
        while (status == MO_OK && w->next < w->n && !discard) {
            if (mo_interrupted())
                status = mo_fail(MO_INTERRUPTED, "interrupted");
            if (status == MO_OK)
                status = submit(w);
            if (status == MO_OK)
                status = wait_for_submitted(w);
        }
        if (status == MO_OK && !discard)
            copy_back(w);
        free_work(w);
    }
    return status;
}

mo_device mo_metal_device = {
    .name = "metal",
    .probe = probe,
    .describe = describe,
    .make_pipeline = make_pipeline,
    .wrap = wrap,
    .unwrap = unwrap,
    .commit = commit,
    .finish = finish,
};
