/* The front end: preprocessed MSL in, C++ out. A tokeniser, not a parser; what C++ itself can say
 * of the shader is left to the compiler. It
 *   - reads the attributes of kernels' parameters into a table, and removes them;
 *   - turns function constants into constants that are initialised when the shader is loaded;
 *   - turns a kernel's threadgroup variables into static ones that the executor is told of;
 *   - translates #pragma METAL, and refuses what C++ allows and MSL does not. */
#include "sim.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct token {
    const char *text;
    int length, line;
    const char *file; /* as in the line marker, with file_length */
    int file_length;
};

struct parser {
    struct token *tokens;
    int count;
    const char *copied; /* the source up to here is in out */
    struct sim_text *out, *error;
    struct sim_text arguments, kernels, constants; /* the tables at the end */
    jmp_buf refused;
};

/* ---- tokens ---- */

static bool is(const struct token *token, const char *text) {
    return token->length == (int)strlen(text) && !memcmp(token->text, text, (size_t)token->length);
}

static bool is_word(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

static bool is_identifier(const struct token *token) {
    return token->length && (isalpha((unsigned char)*token->text) || *token->text == '_');
}

static const char *end_of(const struct token *token) {
    return token->text + token->length;
}

__attribute__((noreturn, format(printf, 3, 4))) static void
refuse(struct parser *parser, const struct token *where, const char *format, ...) {
    char message[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    sim_text_format(parser->error, "%.*s:%d: error: %s\n", where->file_length, where->file,
                    where->line, message);
    longjmp(parser->refused, 1);
}

/* One preprocessing token from p; a directive is a token up to its line's end. */
static const char *token_end(const char *p) {
    if (*p == '#') {
        while (*p && *p != '\n')
            p++;
    } else if (*p == '"' || *p == '\'') {
        char quote = *p++;
        while (*p && *p != quote)
            p += *p == '\\' && p[1] ? 2 : 1;
        p += *p != 0;
    } else if (isdigit((unsigned char)*p)) {
        while (is_word(*p) || *p == '.')
            p++;
    } else if (is_word(*p)) {
        while (is_word(*p))
            p++;
    } else {
        p++;
    }
    return p;
}

static void split(struct parser *parser, const char *source) {
    int capacity = 0, line = 1, file_length = 7;
    const char *file = "program";
    for (const char *p = source; *p;) {
        if (isspace((unsigned char)*p)) {
            line += *p++ == '\n';
            continue;
        }
        const char *end = token_end(p);
        if (*p == '#' && p[1] == ' ' && isdigit((unsigned char)p[2])) { /* # 12 "file" */
            line = (int)strtol(p + 2, NULL, 10) - 1;
            const char *quote = strchr(p, '"');
            if (quote && quote < end) {
                file = quote + 1;
                file_length = (int)(strchr(file, '"') - file);
            }
        } else {
            if (parser->count + 8 > capacity) {
                capacity = 2 * capacity + 1024;
                parser->tokens = realloc(parser->tokens, (size_t)capacity * sizeof(struct token));
            }
            parser->tokens[parser->count++] =
                (struct token){p, (int)(end - p), line, file, file_length};
        }
        p = end;
    }
    for (int i = 0; i < 8; i++) /* so that looking ahead needs no test */
        parser->tokens[parser->count + i] = (struct token){"", 0, line, file, file_length};
}

/* ---- output ---- */

static void copy_until(struct parser *parser, const char *position) {
    sim_text_add(parser->out, parser->copied, (size_t)(position - parser->copied));
    parser->copied = position;
}

static void replace(struct parser *parser, const char *from, const char *to, const char *text) {
    copy_until(parser, from);
    sim_text_add(parser->out, text, strlen(text));
    parser->copied = to;
}

/* ---- attributes ---- */

static const struct {
    const char *name;
    enum sim_argument_kind kind;
} attributes[] = {
    {"buffer", SIM_BUFFER},
    {"threadgroup", SIM_THREADGROUP_MEMORY},
    {"thread_position_in_grid", SIM_THREAD_POSITION_IN_GRID},
    {"threadgroup_position_in_grid", SIM_THREADGROUP_POSITION_IN_GRID},
    {"thread_position_in_threadgroup", SIM_THREAD_POSITION_IN_THREADGROUP},
    {"threads_per_threadgroup", SIM_THREADS_PER_THREADGROUP},
    {"dispatch_threads_per_threadgroup", SIM_DISPATCH_THREADS_PER_THREADGROUP},
    {"threadgroups_per_grid", SIM_THREADGROUPS_PER_GRID},
    {"threads_per_grid", SIM_THREADS_PER_GRID},
    {"thread_index_in_threadgroup", SIM_THREAD_INDEX_IN_THREADGROUP},
    {"thread_index_in_simdgroup", SIM_THREAD_INDEX_IN_SIMDGROUP},
    {"simdgroup_index_in_threadgroup", SIM_SIMDGROUP_INDEX_IN_THREADGROUP},
    {"simdgroups_per_threadgroup", SIM_SIMDGROUPS_PER_THREADGROUP},
    {"threads_per_simdgroup", SIM_THREADS_PER_SIMDGROUP},
};

static bool opens_attribute(const struct token *token) {
    return is(token, "[") && is(token + 1, "[");
}

/* The index of the token behind the attribute that starts at i. */
static int attribute_end(struct parser *parser, int i) {
    const struct token *start = &parser->tokens[i];
    while (i < parser->count && !(is(&parser->tokens[i], "]") && is(&parser->tokens[i + 1], "]")))
        i++;
    if (i == parser->count)
        refuse(parser, start, "this attribute does not end");
    return i + 2;
}

static int closing(struct parser *parser, int i, const char *open, const char *close) {
    int depth = 0, start = i;
    for (; i < parser->count; i++) {
        if (is(&parser->tokens[i], open))
            depth++;
        else if (is(&parser->tokens[i], close) && --depth == 0)
            return i;
    }
    refuse(parser, &parser->tokens[start], "this %s is not closed", open);
}

/* ---- kernels ---- */

/* Reads and removes one parameter's attribute; its row of the table. The parameter is first..last.
 */
static void parameter(struct parser *parser, const struct token *kernel, int first, int last) {
    const struct token *tokens = parser->tokens, *name = &tokens[last];
    char space = 0;
    int kind = 0, index = 0;
    for (int i = first; i <= last; i++) {
        if (is(&tokens[i], "device") || is(&tokens[i], "constant") || is(&tokens[i], "threadgroup"))
            space = space ? space : *tokens[i].text;
        if (!opens_attribute(&tokens[i]))
            continue;
        name = &tokens[i - 1];
        for (size_t a = 0; a < sizeof attributes / sizeof *attributes; a++)
            if (is(&tokens[i + 2], attributes[a].name))
                kind = attributes[a].kind;
        if (!kind)
            refuse(parser, &tokens[i], "attribute %.*s of parameter %.*s is not known",
                   tokens[i + 2].length, tokens[i + 2].text, name->length, name->text);
        index = is(&tokens[i + 3], "(") ? (int)strtol(tokens[i + 4].text, NULL, 10) : 0;
        int end = attribute_end(parser, i);
        replace(parser, tokens[i].text, end_of(&tokens[end - 1]), "");
        i = end - 1;
    }
    if (!kind)
        refuse(parser, name, "kernel %.*s: parameter %.*s has no attribute", kernel->length,
               kernel->text, name->length, name->text);
    bool memory = kind == SIM_BUFFER || kind == SIM_THREADGROUP_MEMORY;
    if (memory && (index < 0 || index >= SIM_MAX_BUFFERS))
        refuse(parser, name, "kernel %.*s: parameter %.*s: index %d is beyond 30", kernel->length,
               kernel->text, name->length, name->text, index);
    if (memory && (!space || (space == 't') != (kind == SIM_THREADGROUP_MEMORY)))
        refuse(parser, name,
               "kernel %.*s: parameter %.*s: its address space does not fit its attribute",
               kernel->length, kernel->text, name->length, name->text);
    sim_text_format(&parser->arguments, "    {%d, %d, %d, \"%.*s\"},\n", kind, index, space,
                    name->length, name->text);
}

/* All parameters of the list that opens at open; where it closes. */
static int parameters(struct parser *parser, const struct token *kernel, int open) {
    int close = closing(parser, open, "(", ")"), depth = 0, first = open + 1;
    for (int i = open + 1; i <= close; i++) {
        const struct token *token = &parser->tokens[i];
        if (i == close || (is(token, ",") && !depth)) {
            if (i > first)
                parameter(parser, kernel, first, i - 1);
            first = i + 1;
        } else if (is(token, "<") || is(token, "(") || is(token, "[")) {
            depth++;
        } else if (is(token, ">") || is(token, ")") || is(token, "]")) {
            depth--;
        }
    }
    return close;
}

static void kernel_entry(struct parser *parser, const char *name, int name_length,
                         const char *function, int function_length, const struct token *table) {
    sim_text_format(&parser->kernels,
                    "    {\"%.*s\", sim::entry<decltype(&%.*s), &%.*s>::call, "
                    "sim::entry<decltype(&%.*s), &%.*s>::count, sim_arguments_%.*s, "
                    "sim::entry<decltype(&%.*s), &%.*s>::types()},\n",
                    name_length, name, function_length, function, function_length, function,
                    function_length, function, function_length, function, table->length,
                    table->text, function_length, function, function_length, function);
}

/* kernel void name(...) at i: the table of its parameters, and its entry unless it is a template.
 */
static int kernel_definition(struct parser *parser, int i) {
    const struct token *name = &parser->tokens[i + 2];
    bool is_template = i && is(&parser->tokens[i - 1], ">");
    if (!is(&parser->tokens[i + 1], "void"))
        refuse(parser, name, "a kernel returns void");
    sim_text_format(&parser->arguments, "static const sim_argument sim_arguments_%.*s[] = {\n",
                    name->length, name->text);
    int close = parameters(parser, name, i + 3);
    sim_text_format(&parser->arguments, "    {}};\n");
    if (!is_template)
        kernel_entry(parser, name->text, name->length, name->text, name->length, name);
    return close;
}

/* template [[host_name("x")]] kernel ... f<...>; or f<...>(...); at the host_name's first bracket.
 */
static int kernel_instance(struct parser *parser, int i) {
    const struct token *tokens = parser->tokens, *host = &tokens[i + 4];
    int after = attribute_end(parser, i);
    if (!is(&tokens[i - 1], "template") || !is(&tokens[after], "kernel") || *host->text != '"')
        refuse(parser, &tokens[i],
               "host_name belongs to an explicit instance of a kernel template");
    replace(parser, tokens[i].text, end_of(&tokens[after - 1]), "");

    int name = after + 1, end = 0; /* the type is void or decltype(...) */
    name = is(&tokens[name], "decltype") ? closing(parser, name + 1, "(", ")") + 1 : name + 1;
    for (end = name; end < parser->count && !is(&tokens[end], ";") && !is(&tokens[end], "(");)
        end++;
    kernel_entry(parser, host->text + 1, host->length - 2, tokens[name].text,
                 (int)(end_of(&tokens[end - 1]) - tokens[name].text), &tokens[name]);
    if (is(&tokens[end], "(")) { /* its parameters' attributes are those of the template */
        size_t length = parser->arguments.length;
        end = parameters(parser, &tokens[name], end);
        parser->arguments.length = length;
        parser->arguments.data[length] = 0;
    }
    return end;
}

/* ---- function constants, threadgroup variables ---- */

/* constant T name [[function_constant(n)]]; at the first bracket */
static int function_constant(struct parser *parser, int i) {
    const struct token *tokens = parser->tokens, *name = &tokens[i - 1], *type = &tokens[i - 2];
    int index = (int)strtol(tokens[i + 4].text, NULL, 10), end = attribute_end(parser, i);
    char text[512];
    if (!is(&tokens[end], ";"))
        refuse(parser, name, "function constant %.*s has an initialiser", name->length, name->text);
    snprintf(text, sizeof text, "SIM_FUNCTION_CONSTANT(%.*s, %.*s, %d)", type->length, type->text,
             name->length, name->text, index);
    replace(parser, type->text, type->text, "SIM_ONLY_WHERE_READ ");
    replace(parser, tokens[i].text, end_of(&tokens[end - 1]), text);
    sim_text_format(&parser->constants, "    {%d, \"%.*s\", (const void *)&%.*s, sizeof %.*s},\n",
                    index, name->length, name->text, name->length, name->text, name->length,
                    name->text);
    return end;
}

/* threadgroup T a[4], b; at i, inside a function: "static T a[4]; (told) static T b; (told)" */
static int threadgroup_variables(struct parser *parser, int i) {
    const struct token *tokens = parser->tokens, *name = NULL;
    const char *type_end = NULL;
    int depth = 0, end = i;
    char text[512];
    for (int j = i; !is(&tokens[j], ";") && !is(&tokens[j], "[") && j < parser->count; j++)
        if (is(&tokens[j], "*") || is(&tokens[j], "&"))
            return i; /* a pointer into threadgroup memory */
    replace(parser, tokens[i].text, tokens[i].text, "static SIM_THREADGROUP ");
    for (; end < parser->count; end++) {
        const struct token *token = &tokens[end];
        if (is(token, "="))
            refuse(parser, token, "a threadgroup variable cannot have an initialiser");
        if (is(token, "[") || is(token, "<") || is(token, "("))
            depth++;
        else if (is(token, "]") || is(token, ">") || is(token, ")"))
            depth--;
        else if (!depth && is_identifier(token) &&
                 (is(token + 1, "[") || is(token + 1, ",") || is(token + 1, ";")))
            name = token;
        if (name && !type_end)
            type_end = name->text;
        bool last = is(token, ";");
        if (!name || depth || (!last && !is(token, ",")))
            continue;
        int length =
            snprintf(text, sizeof text, "; SIM_KNOWN_THREADGROUP(%.*s);", name->length, name->text);
        if (!last)
            snprintf(text + length, sizeof text - (size_t)length, " static SIM_THREADGROUP %.*s",
                     (int)(type_end - tokens[i].text), tokens[i].text);
        replace(parser, token->text, end_of(token), text);
        if (last)
            break;
    }
    return end;
}

/* ---- what MSL does not have, and its pragmas ---- */

static void check_word(struct parser *parser, const struct token *token) {
    static const char *const refused[] = {
        "double", "new",     "delete",       "virtual",  "goto",     "try",
        "catch",  "throw",   "dynamic_cast", "typeid",   "explicit", "asm",
        "std",    "wchar_t", "thread_local", "register",
    };
    if (token[-1].length && is(&token[-1], "."))
        return;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (is(token, refused[i]))
            refuse(parser, token, "%s is not in the Metal Shading Language", refused[i]);
}

static bool is_lambda(const struct token *token) {
    const struct token *before = token - 1;
    return is(token, "[") && !is(token + 1, "[") && !is(before, "[") &&
           (is(before, "=") || is(before, "(") || is(before, ",") || is(before, "return"));
}

static void pragma(struct parser *parser, const struct token *token) {
    char text[256];
    snprintf(text, sizeof text, "%.*s", token->length, token->text);
    char *words = strstr(text, "pragma");
    words = words ? words + strlen("pragma") : text;
    while (*words == ' ')
        words++;
    if (strncmp(words, "METAL", 5))
        return;
    if (strstr(words, "fp contract(off)"))
        replace(parser, token->text, end_of(token), "#pragma clang fp contract(off)");
    else if (strstr(words, "fp contract(on)"))
        replace(parser, token->text, end_of(token), "#pragma clang fp contract(on)");
    else if (strstr(words, "fp contract(fast)"))
        replace(parser, token->text, end_of(token), "#pragma clang fp contract(fast)");
    else
        refuse(parser, token, "this pragma is not known to the simulator: %s", text);
}

/* ---- pointers without an address space ---- */

static bool names_space(const struct token *token) {
    return is(token, "device") || is(token, "constant") || is(token, "threadgroup") ||
           is(token, "thread");
}

/* MSL wants one for every pointer and reference. Looks at one declaration, from first to last. */
static void check_declaration(struct parser *parser, int first, int last) {
    for (int i = first; i <= last; i++) {
        const struct token *token = &parser->tokens[i];
        if (names_space(token))
            return;
        if ((is(token, "*") || is(token, "&")) && is_identifier(token + 1))
            refuse(parser, token, "%s %.*s names no address space",
                   is(token, "*") ? "pointer" : "reference", token[1].length, token[1].text);
    }
}

/* The parameters of a function that is declared at file scope; its list opens at open. */
static void check_parameters(struct parser *parser, int open) {
    int close = closing(parser, open, "(", ")"), first = open + 1, depth = 0;
    const struct token *name = &parser->tokens[open - 1];
    if (!is_identifier(name) || is(name, "static_assert") || is(name, "decltype"))
        return;
    for (int i = first; i <= close; i++) {
        depth += is(&parser->tokens[i], "<") - is(&parser->tokens[i], ">");
        if (i == close || (is(&parser->tokens[i], ",") && !depth)) {
            check_declaration(parser, first, i - 1);
            first = i + 1;
        }
    }
}

/* T *p = ... or const T &r = ... where a statement starts: "a * b;" would be a useless expression.
 */
static void check_statement(struct parser *parser, int i) {
    const struct token *tokens = parser->tokens;
    int type = is(&tokens[i], "const") ? i + 1 : i, star = type + 1;
    if (!is_identifier(&tokens[type]) || is(&tokens[type], "return"))
        return;
    star += is(&tokens[star], "const");
    bool declares =
        is(&tokens[star + 2], "=") || is(&tokens[star + 2], ";") || is(&tokens[star + 2], "[");
    if ((is(&tokens[star], "*") || is(&tokens[star], "&")) && declares)
        check_declaration(parser, i, star);
}

/* ---- the whole ---- */

static void walk(struct parser *parser) {
    const struct token *tokens = parser->tokens;
    int parentheses = 0, braces = 0;
    for (int i = 0; i < parser->count; i++) {
        const struct token *token = &tokens[i];
        bool starts_statement =
            i && (is(token - 1, ";") || is(token - 1, "{") || is(token - 1, "}"));
        if (braces && starts_statement)
            check_statement(parser, i);
        if (is(token, "(")) {
            if (!braces && !parentheses && i)
                check_parameters(parser, i);
            parentheses++;
        } else if (is(token, ")")) {
            parentheses--;
        } else if (is(token, "{")) {
            braces++;
        } else if (is(token, "}")) {
            braces--;
        } else if (*token->text == '#') {
            pragma(parser, token);
        } else if (i && is_lambda(token)) {
            refuse(parser, token, "lambdas are not in MSL 2.4");
        } else if (opens_attribute(token) && is(token + 2, "function_constant")) {
            i = function_constant(parser, i);
        } else if (opens_attribute(token) && is(token + 2, "host_name")) {
            i = kernel_instance(parser, i);
        } else if (opens_attribute(token)) {
            refuse(parser, token, "attribute %.*s is not known here", token[2].length,
                   token[2].text);
        } else if (is(token, "threadgroup") && braces && !parentheses && starts_statement) {
            i = threadgroup_variables(parser, i);
        } else if (is(token, "kernel") && !parentheses && !braces && is(token + 3, "(")) {
            i = kernel_definition(parser, i);
        } else if (i && is_identifier(token)) {
            check_word(parser, token);
        }
    }
}

static void add_tables(struct parser *parser) {
    const char *none = "";
    sim_text_format(parser->out,
                    "\n# 1 \"tables\"\n#ifndef SIM_CHECK\n%s"
                    "extern \"C\" SIM_TABLE const sim_kernel sim_kernels[] = {\n%s    {}};\n"
                    "extern \"C\" SIM_TABLE const sim_function_constant sim_function_constants[] = "
                    "{\n%s    {}};\n"
                    "extern \"C\" SIM_TABLE const unsigned *const sim_threadgroup_sizes[] = "
                    "{__start_sim_sizes, __stop_sim_sizes};\n"
                    "extern \"C\" SIM_TABLE char *const sim_threadgroup_range[] = "
                    "{__start_sim_threadgroup, __stop_sim_threadgroup};\n#endif\n",
                    parser->arguments.data ? parser->arguments.data : none,
                    parser->kernels.data ? parser->kernels.data : none,
                    parser->constants.data ? parser->constants.data : none);
}

bool sim_front_end(const char *source, struct sim_text *out, struct sim_text *error) {
    struct parser *parser = calloc(1, sizeof *parser);
    bool done = false;
    *parser = (struct parser){.copied = source, .out = out, .error = error};
    split(parser, source);
    if (!setjmp(parser->refused)) {
        walk(parser);
        copy_until(parser, source + strlen(source));
        add_tables(parser);
        done = true;
    }
    free(parser->tokens);
    free(parser->arguments.data);
    free(parser->kernels.data);
    free(parser->constants.data);
    free(parser);
    return done;
}
