// deployment-target: 'MTLLanguageVersion3_1' is only available on macOS 14.0 or newer
#import <Metal/Metal.h>

void set_language(MTLCompileOptions *options);
void set_language(MTLCompileOptions *options) {
    if (@available(macOS 13.3, *))
        options.languageVersion = MTLLanguageVersion3_1;
}
