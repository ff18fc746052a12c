// How many cycles a core takes for the instructions that the AVX-512 kernels consist of, alone and
// together: 8 independent groups, over and over. It bounds what a kernel can reach.
//
//     mkdir -p build && cc -O2 benchmarks/instructions.c -o build/instructions &&
//     build/instructions

#include <stdio.h>
#include <time.h>

#define GROUPS 8
#define TIMES 20000

// Group i works on registers of its own: zmm0 to zmm7 are sums, the others are results.
#define FMA(i) "vfmadd231ps %%zmm31, %%zmm30, %%zmm" #i "\n"
#define LOOK_UP(i) "vpermps %%zmm31, %%zmm30, %%zmm1" #i "\n"
#define SHIFT(i) "vpsrld $4, %%zmm30, %%zmm2" #i "\n"
#define AND_OR(i) "vpternlogd $0xea, %%zmm31, %%zmm30, %%zmm1" #i "\n"
#define SUBTRACT(i) "vsubps %%zmm31, %%zmm30, %%zmm2" #i "\n"
#define DECODE(i) LOOK_UP(i) SHIFT(i)
#define FMA_DECODE(i) FMA(i) DECODE(i)
#define FMA_SUBTRACT(i) FMA(i) AND_OR(i) SUBTRACT(i)
#define FMA2_DECODE(i) FMA(i) FMA_DECODE(i)
#define FMA4_DECODE(i) FMA(i) FMA(i) FMA2_DECODE(i)

#define ALL(group) group(0) group(1) group(2) group(3) group(4) group(5) group(6) group(7)

// (The compiler, which is not told of AVX-512, uses no others.)
#define CHANGED                                                                                    \
    "rax", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",         \
        "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"

static double nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

// The least nanoseconds that one of GROUPS takes, of 20 attempts.
#define MEASURE(least, code)                                                                       \
    do {                                                                                           \
        least = 1e9;                                                                               \
        for (int attempt = 0; attempt < 20; attempt++) {                                           \
            const double start = nanoseconds();                                                    \
            for (int i = 0; i < TIMES; i++)                                                        \
                __asm__ volatile(code ::: CHANGED);                                                \
            const double each = (nanoseconds() - start) / TIMES / GROUPS;                          \
            least = each < least ? each : least;                                                   \
        }                                                                                          \
    } while (0)

#define REPORT(name, group)                                                                        \
    do {                                                                                           \
        double least;                                                                              \
        MEASURE(least, ALL(group));                                                                \
        printf("%-48s %5.2f\n", name, least / cycle);                                              \
    } while (0)

#define ADD(i) "add $1, %%rax\n"

int main(void) {
    double cycle; // an addition that waits for the one before takes one
    MEASURE(cycle, ALL(ADD));
    printf("%.2f GHz; cycles:\n", 1 / cycle);
    REPORT("fma", FMA);
    REPORT("look-up (vpermps)", LOOK_UP);
    REPORT("shift", SHIFT);
    REPORT("and-or (vpternlogd)", AND_OR);
    REPORT("subtraction", SUBTRACT);
    REPORT("look-up, shift", DECODE);
    REPORT("fma, look-up, shift (m = 1)", FMA_DECODE);
    REPORT("fma, and-or, subtraction (m = 1, the other way)", FMA_SUBTRACT);
    REPORT("2 fma, look-up, shift (m = 2)", FMA2_DECODE);
    REPORT("4 fma, look-up, shift (m = 4)", FMA4_DECODE);
}
