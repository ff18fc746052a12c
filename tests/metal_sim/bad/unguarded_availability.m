// deployment-target: 'setMathMode:' is only available on macOS 15.0 or newer
#import <Metal/Metal.h>

void set_safe(MTLCompileOptions *options);
void set_safe(MTLCompileOptions *options) {
    options.mathMode = MTLMathModeSafe;
}
