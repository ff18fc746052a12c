/* A good host program returns NULL, or the condition that did not hold. */
#ifndef CHECK_H
#define CHECK_H

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

#include <stdlib.h>
#include <string.h>

#include "metal_sim.h"

#define TEXT(value) #value
#define NUMBERED(line, condition) __FILE__ ":" TEXT(line) ": " condition
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return NUMBERED(__LINE__, #condition);                                                 \
    } while (0)

#endif
