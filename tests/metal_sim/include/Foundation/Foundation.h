/* Stand-in for Apple's <Foundation/Foundation.h>: what a Metal backend without ARC and without
 * blocks uses. Selectors, types, constants and availability are Apple's; what is Linux's own stands
 * under #ifndef __APPLE__. */
#ifndef SIM_FOUNDATION_H
#define SIM_FOUNDATION_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <objc/objc.h>
#ifndef __APPLE__
#include <objc/runtime.h>
#endif

typedef long NSInteger;
typedef unsigned long NSUInteger;

#define NS_ENUM(type, name)                                                                        \
    enum name : type name;                                                                         \
    enum name : type
#define NS_OPTIONS(type, name) NS_ENUM(type, name)

#define SIM_INTRODUCED_macos(version) __attribute__((availability(macos, introduced = version)))
#define SIM_INTRODUCED_ios(version) __attribute__((availability(ios, introduced = version)))
#define API_AVAILABLE(mac, phone) SIM_INTRODUCED_##mac SIM_INTRODUCED_##phone
#define SIM_DEPRECATED(replacement, first, last)                                                   \
    __attribute__((                                                                                \
        availability(macos, introduced = first, deprecated = last, message = replacement)))

#define NS_ASSUME_NONNULL_BEGIN _Pragma("clang assume_nonnull begin")
#define NS_ASSUME_NONNULL_END _Pragma("clang assume_nonnull end")
#define NS_RETURNS_RETAINED __attribute__((ns_returns_retained))
#define NS_RETURNS_INNER_POINTER __attribute__((objc_returns_inner_pointer))
#if __has_feature(objc_arc)
#define SIM_NOT_WITH_ARC                                                                           \
    __attribute__((unavailable("not available with automatic reference counting")))
#else
#define SIM_NOT_WITH_ARC
#endif

NS_ASSUME_NONNULL_BEGIN

#ifndef __APPLE__
/* Off Apple's systems clang takes every @available for true. So that both branches can be tested,
 * it asks the simulated system here: @encode(int) is the string "i", and its element 1 is 0. */
__attribute__((visibility("default"))) int sim_system_is_older(const char *platforms);
#define available(...) encode(int)[sim_system_is_older(#__VA_ARGS__)]
#endif

@class NSString, NSError;

@protocol NSObject
- (BOOL)isEqual:(nullable id)object;
- (NSUInteger)hash;
- (Class)class;
- (BOOL)isKindOfClass:(Class)aClass;
- (BOOL)conformsToProtocol:(Protocol *)aProtocol;
- (BOOL)respondsToSelector:(SEL)aSelector;
- (instancetype)retain SIM_NOT_WITH_ARC;
- (oneway void)release SIM_NOT_WITH_ARC;
- (instancetype)autorelease SIM_NOT_WITH_ARC;
- (NSUInteger)retainCount SIM_NOT_WITH_ARC;
@end

__attribute__((objc_root_class))
@interface NSObject<NSObject> {
    Class isa;
#ifndef __APPLE__
    int sim_references;
#endif
}
+ (instancetype)new;
+ (instancetype)alloc;
+ (Class)class;
- (instancetype)init;
- (void)dealloc;
@end

typedef NSUInteger NSStringEncoding;
enum : NSStringEncoding {
    NSASCIIStringEncoding = 1,
    NSUTF8StringEncoding = 4,
};

@interface NSString : NSObject {
#ifndef __APPLE__
  @protected
    char *sim_text;
    NSUInteger sim_length;
#endif
}
+ (nullable instancetype)stringWithUTF8String:(const char *)nullTerminatedCString;
- (nullable instancetype)initWithUTF8String:(const char *)nullTerminatedCString;
- (nullable instancetype)initWithBytes:(const void *)bytes
                                length:(NSUInteger)len
                              encoding:(NSStringEncoding)encoding;
- (BOOL)isEqualToString:(NSString *)aString;
@property(readonly) NSUInteger length;
@property(nullable, readonly) const char *UTF8String;
@end

#ifndef __APPLE__
/* What @"..." makes (-fconstant-string-class). */
@interface NSConstantString : NSString
@end
#endif

typedef NSString *NSErrorDomain;

@interface NSError : NSObject {
#ifndef __APPLE__
    NSErrorDomain sim_domain;
    NSInteger sim_code;
    NSString *sim_description;
#endif
}
@property(readonly, copy) NSErrorDomain domain;
@property(readonly) NSInteger code;
@property(readonly, copy) NSString *localizedDescription;
@end

@interface NSArray<ObjectType> : NSObject {
#ifndef __APPLE__
    id *sim_objects;
    NSUInteger sim_count;
#endif
}
@property(readonly) NSUInteger count;
@property(nullable, nonatomic, readonly) ObjectType firstObject;
- (ObjectType)objectAtIndex:(NSUInteger)index;
@end

SIM_NOT_WITH_ARC
@interface NSAutoreleasePool : NSObject {
#ifndef __APPLE__
    id *sim_objects;
    NSUInteger sim_count, sim_capacity;
    NSAutoreleasePool *sim_outer;
#endif
}
+ (void)addObject:(id)anObject;
- (void)addObject:(id)anObject;
- (void)drain;
@end

NS_ASSUME_NONNULL_END

#endif
