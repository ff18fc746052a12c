/* What C++ leaves undefined and a GPU answers with anything: an index beyond its array, overflow,
 * division by zero. The compiler puts a call of these functions where it happens
 * (-fsanitize=array-bounds and others). */
#include "executor.h"

/* As the compiler lays them out. */
struct location {
    const char *file;
    uint32_t line, column;
};

struct type {
    uint16_t kind, info;
    char name[];
};

struct place {
    struct location location;
    const struct type *type, *other_type;
};

static void fail(const struct place *place, const char *what, const struct type *type) {
    if (!sim_run.active && !sim_run.overdue) /* a constant is being initialised */
        return;
    struct sim_site site = {"arithmetic", place->location.file, (int)place->location.line,
                            (int)place->location.column};
    sim_fail(NULL, &site, "%s %s", what, type->name);
}

METAL_SIM_API void __ubsan_handle_out_of_bounds(const struct place *place, uintptr_t index) {
    (void)index; /* of a type that is not known here to be signed */
    fail(place, "index out of the bounds of", place->type);
}

#define OVERFLOW_HANDLER(name, what)                                                               \
    METAL_SIM_API void __ubsan_handle_##name(const struct place *place, uintptr_t a,               \
                                             uintptr_t b) {                                        \
        (void)a, (void)b;                                                                          \
        fail(place, what, place->type);                                                            \
    }

OVERFLOW_HANDLER(add_overflow, "addition overflows the type")
OVERFLOW_HANDLER(sub_overflow, "subtraction overflows the type")
OVERFLOW_HANDLER(mul_overflow, "multiplication overflows the type")
OVERFLOW_HANDLER(divrem_overflow, "division by zero, or of the least by -1, in the type")
OVERFLOW_HANDLER(shift_out_of_bounds,
                 "shift by more bits than there are, or of a sign, in the type")
OVERFLOW_HANDLER(float_cast_overflow, "a value that does not fit is converted from the type")

METAL_SIM_API void __ubsan_handle_negate_overflow(const struct place *place, uintptr_t a) {
    (void)a;
    fail(place, "negation overflows the type", place->type);
}
