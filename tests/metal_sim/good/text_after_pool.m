/* A text that outlived its string is not left as it was. */
#include "check.h"

const char *run(void) {
    const char *text;
    @autoreleasepool {
        text = [[NSString stringWithUTF8String:"abc"] UTF8String];
        CHECK(!strcmp(text, "abc"));
    }
    CHECK(!strcmp(text, "???"));
    return NULL;
}
