/* NSObject, NSString, NSError, NSArray and NSAutoreleasePool on GCC's Objective-C runtime.
 *
 * An object that is gone stays behind as a zombie: its memory is never used again, and a message to
 * it is reported instead of doing harm. */
#import "foundation_private.h"

#include <objc/message.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

/* The name that Metal's user knows: SimMTLBuffer implements MTLBuffer. */
static const char *public_name(Class class) {
    const char *name = class_getName(class);
    return !strncmp(name, "Sim", 3) ? name + 3 : name;
}

/* ---- zombies and unknown messages ---- */

__attribute__((objc_root_class))
@interface SimZombie {
    Class isa;
    int references;
  @public
    Class was;
}
@end
@implementation SimZombie
@end

static id answer_nil(id self, SEL selector) {
    (void)self, (void)selector;
    return nil;
}

static IMP report_unknown(id object, SEL selector) {
    Class class = object_getClass(object);
    if (class == objc_getClass("SimZombie"))
        sim_report("%s sent to a %s that no longer exists (over-released, or used after release)",
                   sel_getName(selector), public_name(((SimZombie *)object)->was));
    else
        sim_report("%s does not respond to %s", public_name(class), sel_getName(selector));
    return (IMP)answer_nil;
}

__attribute__((constructor)) static void install(void) {
    __objc_msg_forward2 = report_unknown;
}

/* ---- NSObject ---- */

@implementation NSObject
+ (instancetype)alloc {
    size_t room = class_getInstanceSize(objc_getClass("SimZombie"));
    size_t size = class_getInstanceSize(self);
    NSObject *object = class_createInstance(self, size < room ? room - size : 0);
    object->sim_references = 1;
    sim_object_created(public_name(self));
    return object;
}
+ (instancetype)new {
    return [[self alloc] init];
}
+ (Class)class {
    return self;
}
- (instancetype)init {
    return self;
}
- (Class)class {
    return object_getClass(self);
}
- (BOOL)isEqual:(id)object {
    return self == object;
}
- (NSUInteger)hash {
    return (NSUInteger)self;
}
- (BOOL)isKindOfClass:(Class)wanted {
    for (Class class = object_getClass(self); class; class = class_getSuperclass(class))
        if (class == wanted)
            return YES;
    return NO;
}
- (BOOL)conformsToProtocol:(Protocol *)protocol {
    for (Class class = object_getClass(self); class; class = class_getSuperclass(class))
        if (class_conformsToProtocol(class, protocol))
            return YES;
    return NO;
}
- (BOOL)respondsToSelector:(SEL)selector {
    return class_respondsToSelector(object_getClass(self), selector);
}
- (instancetype)retain {
    __atomic_add_fetch(&sim_references, 1, __ATOMIC_RELAXED);
    return self;
}
- (oneway void)release {
    if (__atomic_sub_fetch(&sim_references, 1, __ATOMIC_ACQ_REL) == 0)
        [self dealloc];
}
- (instancetype)autorelease {
    [NSAutoreleasePool addObject:self];
    return self;
}
- (NSUInteger)retainCount {
    return (NSUInteger)sim_references;
}
- (void)dealloc {
    Class class = object_getClass(self);
    sim_object_destroyed(public_name(class));
    object_setClass(self, objc_getClass("SimZombie"));
    ((SimZombie *)self)->was = class;
}
@end

/* ---- NSString ---- */

@implementation NSString
+ (instancetype)stringWithUTF8String:(const char *)text {
    return [[[self alloc] initWithUTF8String:text] autorelease];
}
- (instancetype)initWithUTF8String:(const char *)text {
    return [self initWithBytes:text length:strlen(text) encoding:NSUTF8StringEncoding];
}
- (instancetype)initWithBytes:(const void *)bytes
                       length:(NSUInteger)length
                     encoding:(NSStringEncoding)encoding {
    if (encoding != NSUTF8StringEncoding && encoding != NSASCIIStringEncoding)
        sim_report("NSString: encoding %lu is not simulated", (unsigned long)encoding);
    sim_text = malloc(length + 1);
    memcpy(sim_text, bytes, length);
    sim_text[length] = 0;
    sim_length = length;
    return self;
}
- (const char *)UTF8String {
    return sim_text;
}
- (NSUInteger)length {
    return sim_length;
}
- (BOOL)isEqualToString:(NSString *)other {
    return !strcmp(self.UTF8String, other.UTF8String);
}
- (void)dealloc {
    memset(sim_text, '?', sim_length); /* for who still holds UTF8String; so short ones stay */
    if (sim_length > 4096)
        free(sim_text);
    [super dealloc];
}
@end

/* How the compiler lays out @"...", whatever the class declares. */
struct constant_string {
    Class isa;
    const char *text;
    unsigned length;
};

@implementation NSConstantString
- (const char *)UTF8String {
    return ((struct constant_string *)self)->text;
}
- (NSUInteger)length {
    return ((struct constant_string *)self)->length;
}
- (instancetype)retain {
    return self;
}
- (oneway void)release {
}
- (instancetype)autorelease {
    return self;
}
@end

/* ---- NSError, NSArray ---- */

@implementation NSError
+ (NSError *)errorInDomain:(NSErrorDomain)domain code:(NSInteger)code text:(const char *)text {
    NSError *error = [[self new] autorelease];
    error->sim_domain = domain;
    error->sim_code = code;
    error->sim_description = [[NSString alloc] initWithUTF8String:text];
    return error;
}
- (NSErrorDomain)domain {
    return sim_domain;
}
- (NSInteger)code {
    return sim_code;
}
- (NSString *)localizedDescription {
    return sim_description;
}
- (void)dealloc {
    [sim_description release];
    [super dealloc];
}
@end

@implementation NSArray
+ (NSArray *)newWithObjects:(const id *)objects count:(NSUInteger)count {
    NSArray *array = [self new];
    array->sim_objects = calloc(count + 1, sizeof *objects);
    for (array->sim_count = 0; array->sim_count < count; array->sim_count++)
        array->sim_objects[array->sim_count] = [objects[array->sim_count] retain];
    return array;
}
- (NSUInteger)count {
    return sim_count;
}
- (id)firstObject {
    return sim_count ? sim_objects[0] : nil;
}
- (id)objectAtIndex:(NSUInteger)index {
    if (index < sim_count)
        return sim_objects[index];
    sim_report("NSArray: index %lu is beyond %lu objects", index, sim_count);
    return nil;
}
- (void)dealloc {
    for (NSUInteger i = 0; i < sim_count; i++)
        [sim_objects[i] release];
    free(sim_objects);
    [super dealloc];
}
@end

/* ---- NSAutoreleasePool ---- */

static __thread NSAutoreleasePool *innermost;

@implementation NSAutoreleasePool
+ (void)addObject:(id)object {
    if (innermost)
        [innermost addObject:object];
    else
        sim_report("a %s was autoreleased with no pool in place, so it leaks",
                   public_name(object_getClass(object)));
}
- (instancetype)init {
    sim_outer = innermost;
    innermost = self;
    return self;
}
- (void)addObject:(id)object {
    if (sim_count == sim_capacity) {
        sim_capacity = 2 * sim_capacity + 16;
        sim_objects = realloc(sim_objects, sim_capacity * sizeof *sim_objects);
    }
    sim_objects[sim_count++] = object;
}
- (void)drain {
    for (NSUInteger i = 0; i < sim_count; i++)
        [sim_objects[i] release];
    free(sim_objects);
    innermost = sim_outer;
    [super release];
}
- (oneway void)release {
    [self drain];
}
@end
