/* Looks at the LLVM text of a shader compiled with real address spaces (SIM_CHECK) for what C++
 * lets pass and MSL does not: a cast from one address space to another. */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The text of metadata node !n, up to its line's end; "" where there is none. */
static const char *node(const char *module, unsigned long n) {
    char start[32];
    snprintf(start, sizeof start, "\n!%lu = ", n);
    const char *found = strstr(module, start);
    return found ? found + strlen(start) : "";
}

/* The number behind key within one node, such as "line: " or "scope: !"; 0 where it is missing. */
static unsigned long field(const char *text, const char *key) {
    const char *end = strchr(text, '\n'), *found = strstr(text, key);
    return found && end && found < end ? strtoul(found + strlen(key), NULL, 10) : 0;
}

/* The file of a scope or variable: its own, or that of the scope around it. */
static void file_of(const char *module, const char *text, char *name, size_t size) {
    unsigned long file = field(text, "file: !"), scope;
    while (!file && (scope = field(text, "scope: !"))) {
        text = node(module, scope);
        file = field(text, "file: !");
    }
    const char *found = strstr(node(module, file), "filename: \"");
    snprintf(name, size, "?");
    if (file && found) {
        found += strlen("filename: \"");
        int length = (int)strcspn(found, "\"");
        for (int i = length; i-- > 0;)
            if (found[i] == '/') {
                found += i + 1;
                length -= i + 1;
                break;
            }
        snprintf(name, size, "%.*s", length, found);
    }
}

bool sim_check_spaces(const char *module, struct sim_text *error) {
    const char *cast = strstr(module, "addrspacecast");
    if (!cast)
        return true;
    char file[256];
    const char *place = node(module, field(cast, "!dbg !"));
    file_of(module, place, file, sizeof file);
    sim_text_format(error, "%s:%lu: error: a pointer is cast from one address space to another\n",
                    file, field(place, "line: "));
    return false;
}
