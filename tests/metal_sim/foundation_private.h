/* What metal.m makes of the Foundation classes beyond Apple's interface. */
#import <Foundation/Foundation.h>

@interface NSError (Sim)
+ (NSError *)errorInDomain:(NSErrorDomain)domain code:(NSInteger)code text:(const char *)text;
@end

@interface NSArray (Sim)
+ (NSArray *)newWithObjects:(const id *)objects count:(NSUInteger)count;
@end
