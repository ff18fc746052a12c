/* Compiles MSL to shared objects, keeps them on disk, and loads them with their function constants.
 */
#include "executor.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHIM METAL_SIM_HOME "/msl"

/* ---- files ---- */

static bool write_file(const char *path, const char *data, size_t length) {
    FILE *file = fopen(path, "wb");
    if (!file)
        return false;
    bool written = fwrite(data, 1, length, file) == length;
    return !fclose(file) && written;
}

static bool read_file(const char *path, struct sim_text *text) {
    char piece[65536];
    FILE *file = fopen(path, "rb");
    if (!file)
        return false;
    for (size_t n; (n = fread(piece, 1, sizeof piece, file));)
        sim_text_add(text, piece, n);
    fclose(file);
    return true;
}

static void make_directories(const char *path) {
    char part[4096];
    snprintf(part, sizeof part, "%s", path);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(part, 0777);
        *slash = '/';
    }
    mkdir(part, 0777);
}

static char *join(const char *directory, const char *name) {
    struct sim_text path = {0};
    sim_text_format(&path, "%s/%s", directory, name);
    return path.data;
}

static void remove_directory(const char *directory) {
    char *command[] = {"rm", "-rf", (char *)directory, NULL};
    sim_run_program(command, NULL);
}

/* ---- the stages of a compilation ---- */

static const char *const common_flags[] = {
    METAL_SIM_CLANG,
    "-x",
    "c++",
    "-std=c++14",
    "-Werror=c++17-extensions",
    "-Wno-user-defined-literals",
    "-Wno-duplicate-decl-specifier",
    "-Wno-unknown-pragmas",
    "-Wno-pass-failed", /* loops that cannot be unrolled, as threads meet in them */
    "-cl-single-precision-constant",
    "-Xclang",
    "-fnative-half-type",
    "-Xclang",
    "-fallow-half-arguments-and-returns",
    "-nostdinc",
    "-fno-exceptions",
    "-fno-rtti",
    "-I" SHIM,
    "-include",
    "metal_stdlib",
    NULL,
};

static const char *const check_flags[] = {
    "-DSIM_CHECK", "-ferror-limit=0", "-O0", "-g", "-S", "-emit-llvm", NULL,
};

static const char *const build_flags[] = {
    "-O1",
    "-gline-tables-only",
    "-gdwarf-4",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-math-errno",
    "-fno-finite-loops", /* an endless loop stays one */
    "-Xclang",
    "-ffp-contract=fast-honor-pragmas",
    "-fsanitize=thread,array-bounds,signed-integer-overflow,integer-divide-by-zero,shift",
    "-fsanitize=float-cast-overflow",
    "-mllvm",
    "-tsan-instrument-func-entry-exit=0",
    "-mllvm",
    "-tsan-instrument-read-before-write=1",
    "-shared",
    "-nostdlib",
    "-Wl,--wrap=memcpy,--wrap=memmove,--wrap=memset",
#if defined(__x86_64__)
    "-mfma",
    "-mf16c",
#endif
    NULL,
};

/* What the library loads with; behind the source. */
static const char *const link_flags[] = {"-x", "none", METAL_SIM_LIBRARY, "-lm", "-lc", NULL};

/* As -ffast-math, which itself would set the whole process to flush subnormals; and
 * -freciprocal-math with these would contract against the source's pragma. */
static const char *const fast_math_flags[] = {
    "-fassociative-math", "-ffinite-math-only", "-fno-signed-zeros", "-fno-trapping-math", NULL,
};

static const char *const no_flags[] = {NULL};

/* One of the compiler's runs, in a thread of its own: the two that a shader needs run side by side.
 */
struct stage {
    const char *command[96];
    int words, status;
    struct sim_text output;
};

static void add_words(struct stage *stage, const char *const *words) {
    while (*words)
        stage->command[stage->words++] = *words++;
}

static void *run_stage(void *argument) {
    struct stage *stage = argument;
    stage->status = sim_run_program((char *const *)stage->command, &stage->output);
    return NULL;
}

static void run_both(struct stage *first, struct stage *second) {
    pthread_t thread;
    bool threaded = !pthread_create(&thread, NULL, run_stage, first);
    run_stage(second);
    if (threaded)
        pthread_join(thread, NULL);
    else
        run_stage(first);
}

static bool preprocess(const char *directory, const struct sim_compile_options *options,
                       struct sim_text *out, struct sim_text *error) {
    char version[64];
    snprintf(version, sizeof version, "-D__METAL_VERSION__=%d", options->language);
    char *input = join(directory, "source.metal"), *output = join(directory, "preprocessed");
    char *command[] = {METAL_SIM_CLANG,
                       "-E",
                       "-x",
                       "c++",
                       "-std=c++14",
                       "-undef",
                       "-D__cplusplus=201402L",
                       "-D__METAL__=1",
                       "-D__METAL_MACOS__=1",
                       version,
                       "-nostdinc",
                       "-I" SHIM "/preprocess",
                       "-Wno-unknown-pragmas",
                       input,
                       "-o",
                       output,
                       NULL};
    struct sim_text messages = {0};
    bool done = sim_run_program(command, &messages) == 0 && read_file(output, out);
    if (!done)
        sim_text_add(error, messages.data ? messages.data : "", messages.length);
    free(messages.data);
    free(input);
    free(output);
    return done;
}

/* Are the checking compiler's errors only that a struct is copied from one address space to
 * another? In MSL that is allowed, clang has no such constructors. (It then writes no module, and
 * casts are not looked at.) */
static bool only_struct_copies(const char *messages) {
    size_t errors = 0, copies = 0;
    for (const char *p = messages; p && (p = strstr(p, ": error: ")); errors++) {
        p += strlen(": error: ");
        copies += !strncmp(p, "no matching constructor for initialization of", 45) ||
                  !strncmp(p, "no viable overloaded '='", 24);
    }
    return errors && errors == copies;
}

/* Compiles for real, and once more with real address spaces; both must succeed. */
static bool translate(const char *directory, const struct sim_compile_options *options,
                      struct sim_text *error) {
    char *source = join(directory, "shader.cpp"), *object = join(directory, "shader.so");
    char *checked = join(directory, "checked.ll");
    struct stage checking = {.words = 0}, building = {.words = 0};
    add_words(&checking, common_flags);
    add_words(&checking, check_flags);
    add_words(&checking, (const char *[]){source, "-o", checked, NULL});
    add_words(&building, common_flags);
    add_words(&building, build_flags);
    add_words(&building, options->fast_math ? fast_math_flags : no_flags);
    add_words(&building, (const char *[]){source, "-o", object, NULL});
    add_words(&building, link_flags);
    run_both(&checking, &building);

    bool copies = checking.status > 0 && only_struct_copies(checking.output.data);
    bool checked_well = checking.status == 0 || copies;
    bool done = checked_well && building.status == 0;
    const struct sim_text *said = checked_well ? &building.output : &checking.output;
    if (!done && said->data)
        sim_text_add(error, said->data, said->length);
    else if (!done)
        sim_text_format(error, "%s cannot be run", METAL_SIM_CLANG);
    struct sim_text module = {0};
    if (done && !copies)
        done = read_file(checked, &module) && sim_check_spaces(module.data, error);
    free(module.data);
    free(checking.output.data);
    free(building.output.data);
    free(source);
    free(object);
    free(checked);
    return done;
}

static bool compile_in(const char *directory, const char *source,
                       const struct sim_compile_options *options, struct sim_text *error) {
    struct sim_text text = {0}, preprocessed = {0}, translated = {0};
    char *input = join(directory, "source.metal"), *output = join(directory, "shader.cpp");
    sim_text_format(&text, "#line 1 \"program_source\"\n%s\n", source);
    bool done = write_file(input, text.data, text.length) &&
                preprocess(directory, options, &preprocessed, error) &&
                sim_front_end(preprocessed.data, &translated, error) &&
                write_file(output, translated.data, translated.length) &&
                translate(directory, options, error);
    if (!done && !error->length)
        sim_text_format(error, "cannot write to %s", directory);
    free(text.data);
    free(preprocessed.data);
    free(translated.data);
    free(input);
    free(output);
    return done;
}

/* ---- the cache ---- */

static uint64_t hash(uint64_t state, const char *text) {
    for (; *text; text++) /* FNV-1a */
        state = (state ^ (unsigned char)*text) * 0x100000001b3;
    return state;
}

char *sim_compile(const char *source, const struct sim_compile_options *options,
                  struct sim_text *error) {
    struct sim_text entry = {0}, work = {0}, key = {0};
    sim_text_format(&key, "%s %d %d\n%s", METAL_SIM_BUILD, options->language, options->fast_math,
                    source);
    make_directories(sim_shader_cache());
    sim_text_format(&entry, "%s/%016lx%016lx", sim_shader_cache(),
                    hash(0xcbf29ce484222325, key.data), hash(0x9e3779b97f4a7c15, key.data));
    char *path = join(entry.data, "shader.so");
    bool done = !access(path, R_OK);
    if (!done) {
        sim_counts.compilations++;
        sim_text_format(&work, "%s/work.XXXXXX", sim_shader_cache());
        if (!mkdtemp(work.data))
            sim_text_format(error, "cannot write to %s: %s", sim_shader_cache(), strerror(errno));
        else if ((done = compile_in(work.data, source, options, error)) &&
                 !rename(work.data, entry.data)) {
        } else { /* failed, or another process was first */
            remove_directory(work.data);
        }
    }
    if (options->fast_math)
        sim_counts.fast_math_libraries++;
    free(key.data);
    free(work.data);
    free(entry.data);
    if (!done) {
        free(path);
        return NULL;
    }
    return path;
}

/* ---- loading, and function constants ---- */

bool sim_loading;

static struct {
    const struct sim_constant_value *values;
    size_t count;
    struct sim_text *error;
    struct {
        const char *address;
        unsigned size, index;
    } undefined[64];
    size_t undefined_count;
} loading;

static pthread_mutex_t loading_lock = PTHREAD_MUTEX_INITIALIZER;

/* The last value set for an index counts. */
static const struct sim_constant_value *value_of(unsigned index) {
    for (size_t i = loading.count; i-- > 0;)
        if (loading.values[i].index == index)
            return &loading.values[i];
    return NULL;
}

METAL_SIM_API void sim_function_constant_value(unsigned index, unsigned type, const void *address,
                                               unsigned size, void *value) {
    const struct sim_constant_value *given = value_of(index);
    if (given && given->type != type)
        sim_text_format(loading.error,
                        "function constant %u: its value was set as MTLDataType %u, the shader "
                        "declares MTLDataType %u\n",
                        index, given->type, type);
    else if (given)
        memcpy(value, &given->bits, size);
    else if (loading.undefined_count < 64) {
        loading.undefined[loading.undefined_count].address = address;
        loading.undefined[loading.undefined_count].size = size;
        loading.undefined[loading.undefined_count++].index = index;
    }
}

METAL_SIM_API bool sim_function_constant_is_defined(unsigned index) {
    return value_of(index);
}

void sim_loading_read(uintptr_t address) {
    for (size_t i = 0; i < loading.undefined_count; i++)
        if (address - (uintptr_t)loading.undefined[i].address < loading.undefined[i].size)
            sim_text_format(loading.error,
                            "function constant %u has no value, and a constant at program scope is "
                            "made from it without is_function_constant_defined\n",
                            loading.undefined[i].index);
}

/* A copy of the shared object, so that each function has constants of its own. */
static void *open_copy(const char *path, struct sim_text *error) {
    static atomic_uint number;
    struct sim_text image = {0};
    char copy[128];
    void *handle = NULL;
    snprintf(copy, sizeof copy, "/tmp/metal_sim.%d.%u.so", (int)getpid(), number++);
    if (read_file(path, &image) && write_file(copy, image.data, image.length))
        handle = dlopen(copy, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        sim_text_format(error, "%s", image.length ? dlerror() : "a compiled shader is gone");
    unlink(copy);
    free(image.data);
    return handle;
}

static int find_image(struct dl_phdr_info *info, size_t size, void *argument) {
    struct sim_function *function = argument;
    (void)size;
    if (info->dlpi_addr != function->image)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        if (info->dlpi_phdr[i].p_type != PT_LOAD)
            continue;
        if (!function->constant_start || start < function->constant_start)
            function->constant_start = start;
        if (start + info->dlpi_phdr[i].p_memsz > function->constant_end)
            function->constant_end = start + info->dlpi_phdr[i].p_memsz;
    }
    return 1;
}

static const struct sim_kernel *find_kernel(void *handle, const char *name) {
    const struct sim_kernel *kernel = dlsym(handle, "sim_kernels");
    while (kernel && kernel->name && strcmp(kernel->name, name))
        kernel++;
    return kernel && kernel->name ? kernel : NULL;
}

static struct sim_function *describe(void *handle, const struct sim_kernel *kernel,
                                     const char *path, bool fast_math) {
    struct sim_function *function = calloc(1, sizeof *function);
    Dl_info info = {0};
    *function = (struct sim_function){.handle = handle,
                                      .path = strdup(path),
                                      .fast_math = fast_math,
                                      .kernel = kernel,
                                      .constants = dlsym(handle, "sim_function_constants")};
    dladdr((void *)(uintptr_t)kernel->call, &info);
    function->image = (uintptr_t)info.dli_fbase;
    dl_iterate_phdr(find_image, function);
    char *const *threadgroup = dlsym(handle, "sim_threadgroup_range");
    function->threadgroup_start = (uintptr_t)threadgroup[0];
    function->threadgroup_end = (uintptr_t)threadgroup[1];
    for (unsigned i = 0; function->constants[i].name && i < 64; i++)
        for (size_t k = 0; k < loading.undefined_count; k++)
            if (loading.undefined[k].index == function->constants[i].index)
                function->undefined_constants |= (uint64_t)1 << i;
    return function;
}

struct sim_function *sim_load(const char *path, const char *name, bool fast_math,
                              const struct sim_constant_value *values, size_t count,
                              struct sim_text *error) {
    struct sim_function *function = NULL;
    pthread_mutex_lock(&loading_lock);
    loading.values = values;
    loading.count = count;
    loading.error = error;
    loading.undefined_count = 0;
    sim_loading = true;
    void *handle = open_copy(path, error);
    sim_loading = false;
    const struct sim_kernel *kernel = handle ? find_kernel(handle, name) : NULL;
    if (handle && !kernel)
        sim_text_format(error, "function %s was not found in the library", name);
    if (!error->length)
        function = describe(handle, kernel, path, fast_math);
    else if (handle)
        dlclose(handle);
    pthread_mutex_unlock(&loading_lock);
    return function;
}

size_t sim_threadgroup_bytes(const struct sim_function *function) {
    const unsigned *const *range = dlsym(function->handle, "sim_threadgroup_sizes");
    size_t sum = 0;
    for (const unsigned *size = range[0]; size < range[1]; size++)
        sum += *size;
    return sum;
}

void sim_unload(struct sim_function *function) {
    dlclose(function->handle);
    free(function->path);
    free(function);
}

bool sim_kernel_names(const char *path, struct sim_text *names) {
    struct sim_text error = {0};
    pthread_mutex_lock(&loading_lock);
    loading.count = 0;
    loading.error = &error;
    loading.undefined_count = 0;
    void *handle = open_copy(path, &error);
    const struct sim_kernel *kernel = handle ? dlsym(handle, "sim_kernels") : NULL;
    for (; kernel && kernel->name; kernel++)
        sim_text_format(names, "%s\n", kernel->name);
    pthread_mutex_unlock(&loading_lock);
    free(error.data);
    return handle && !dlclose(handle);
}
