/* A libcuda without a GPU, for the tests of the CUDA device. Shares nothing with the library.
 *
 * It keeps the rules of the driver, and reports who breaks them:
 * - "Device" memory has addresses that the host cannot use, with gaps between the allocations; it
 *   is filled with NaN.
 * - What a stream is given is done as late as possible: at a wait, or where the real driver would
 *   have to wait too. Memory that is registered is read and written then; other memory at once.
 * - Kernels are those of the PTX that is loaded, by name and parameters, done in plain C here.
 * - The n-th call of a function can be made to fail.
 *
 * FAKE_CUDA in the environment describes the machine: "memory=1048576,major=7,...". The functions
 * fake_cuda_... are for the tests.
 */
#define _GNU_SOURCE
#include <fenv.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int CUresult;
typedef unsigned long long CUdeviceptr;

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    DEINITIALIZED = 4,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    INVALID_PTX = 218,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    ILLEGAL_ADDRESS = 700,
    ALREADY_REGISTERED = 712,
    NOT_REGISTERED = 713,
    LAUNCH_FAILED = 719,
};

static const struct {
    CUresult code;
    const char *name, *text;
} errors[] = {
    {SUCCESS, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "already mapped"},
    {NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "not mapped"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
};

/* ---- The machine, and what the tests see and set ----------------------------------------------
 */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long machine_init, machine_count = 1, machine_major = 9, machine_minor = 0;
static long machine_version = 12040, machine_memory = 1L << 30;
static pid_t owner;
static bool initialised, deinitialised;
static CUresult lost; /* what every call returns once the context has been lost */
static char reports[1 << 14];
static char transfers[1 << 16];

enum { MAX_FUNCTIONS = 40 };
static struct {
    const char *name;
    long calls;
} functions[MAX_FUNCTIONS];
static long calls;

static struct {
    char name[64]; /* empty: any function */
    long n;        /* 0: none is to fail */
    CUresult code;
    bool for_good;
    char failed[64]; /* which one has */
} fault;

__attribute__((format(printf, 1, 2))) static void report(const char *format, ...) {
    va_list args;
    size_t used = strlen(reports);
    va_start(args, format);
    used += (size_t)vsnprintf(reports + used, sizeof reports - used, format, args);
    va_end(args);
    if (used < sizeof reports - 1)
        strcat(reports, "\n");
}

static void set_machine(const char *key, long value) {
    static const struct {
        const char *key;
        long *value;
    } settings[] = {
        {"init", &machine_init},   {"count", &machine_count},     {"major", &machine_major},
        {"minor", &machine_minor}, {"version", &machine_version}, {"memory", &machine_memory},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (strcmp(settings[i].key, key) == 0) {
            *settings[i].value = value;
            return;
        }
    snprintf(fault.name, sizeof fault.name, "%s", key); /* cuInit=3: its first call fails */
    fault.code = (CUresult)value;
    fault.n = 1;
}

__attribute__((constructor)) static void begin(void) {
    char text[256], *rest = text;
    const char *given = getenv("FAKE_CUDA");
    owner = getpid();
    snprintf(text, sizeof text, "%s", given ? given : "");
    for (char *item; (item = strsep(&rest, ","));) {
        char *equals = strchr(item, '=');
        if (equals) {
            *equals = '\0';
            set_machine(item, atol(equals + 1));
        }
    }
}

__attribute__((destructor)) static void end(void) {
    deinitialised = true;
}

static long *calls_of(const char *name) {
    size_t i = 0;
    while (functions[i].name && strcmp(functions[i].name, name) != 0)
        i++;
    functions[i].name = name;
    return &functions[i].calls;
}

static void lose(CUresult code);

/* Takes the lock; what the call is to return, before it has done anything. */
static CUresult enter(const char *name) {
    pthread_mutex_lock(&lock);
    if (getpid() != owner) {
        fprintf(stderr, "fake libcuda: %s in a forked child\n", name);
        abort();
    }
    calls++;
    ++*calls_of(name);
    if (deinitialised)
        return DEINITIALIZED;
    const bool counts = !fault.name[0] || strcmp(fault.name, name) == 0;
    if (fault.n > 0 && counts && --fault.n == 0) {
        snprintf(fault.failed, sizeof fault.failed, "%s", name);
        if (fault.for_good)
            lose(fault.code);
        return fault.code;
    }
    if (!initialised && strcmp(name, "cuInit") != 0 && strcmp(name, "cuDriverGetVersion") != 0) {
        report("%s before cuInit", name);
        return NOT_INITIALIZED;
    }
    return SUCCESS;
}

static CUresult leave(CUresult result) {
    pthread_mutex_unlock(&lock);
    return result;
}

/* ---- Contexts ----------------------------------------------------------------------------------
 */

static char the_context, the_stream;
static long retained, streams;
static _Thread_local long depth;

/* As enter, for what needs the context. */
static CUresult enter_context(const char *name) {
    const CUresult result = enter(name);
    if (result != SUCCESS || lost != SUCCESS)
        return result != SUCCESS ? result : lost;
    if (depth < 1 || retained < 1) {
        report("%s without a current context", name);
        return INVALID_CONTEXT;
    }
    return SUCCESS;
}

/* ---- Memory ------------------------------------------------------------------------------------
 */

typedef struct allocation {
    CUdeviceptr address;
    size_t size;
    unsigned char *contents;
    struct allocation *next;
} allocation;

typedef struct registration {
    unsigned char *memory;
    size_t size;
    struct registration *next;
} registration;

static allocation *allocations;
static registration *registrations;
static size_t allocated;

/* Where the contents are of bytes at a device address; NULL if there is no such memory. */
static unsigned char *translate(CUdeviceptr address, size_t size) {
    for (allocation *a = allocations; a; a = a->next)
        if (a->address <= address && address - a->address <= a->size &&
            size <= a->size - (address - a->address))
            return a->contents + (address - a->address);
    return NULL;
}

static bool is_registered(const void *memory, size_t size) {
    const unsigned char *start = memory;
    for (registration *r = registrations; r; r = r->next)
        if (r->memory <= start && start + size <= r->memory + r->size)
            return true;
    return false;
}

/* Whether pages are there: the driver would go on using those that were registered. */
static bool is_mapped(unsigned char *memory, size_t size) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *pages = malloc(size / page + 1);
    const bool mapped = mincore(memory, size, pages) == 0;
    free(pages);
    return mapped;
}

static void check_registrations(void) {
    for (registration *r = registrations; r; r = r->next)
        if (!is_mapped(r->memory, r->size))
            report("%zu bytes were unmapped while they were registered", r->size);
}

/* ---- Kernels -----------------------------------------------------------------------------------
 */

enum { MAX_PARAMETERS = 8, MAX_PARAMETER_BYTES = 64 };

typedef struct function {
    char name[128];
    size_t n;
    size_t sizes[MAX_PARAMETERS];
    struct function *next;
} function;

typedef struct launch {
    const function *function;
    unsigned grid[3], block[3];
    _Alignas(8) unsigned char parameters[MAX_PARAMETERS][MAX_PARAMETER_BYTES];
} launch;

void canonical_order(const uint8_t *blocks, const float *x, int64_t m, int64_t K,
                     const int64_t *rows, int64_t n_rows, float *result);

/* A buffer argument; the context is lost if it is not aligned or has not that many bytes. */
static void *argument(const launch *l, size_t index, size_t size, size_t alignment) {
    CUdeviceptr address;
    memcpy(&address, l->parameters[index], sizeof address);
    unsigned char *contents = translate(address, size);
    if (address % alignment != 0)
        contents = NULL;
    if (!contents) {
        report("%s: argument %zu is not %zu bytes of device memory at a multiple of %zu",
               l->function->name, index, size, alignment);
        lost = ILLEGAL_ADDRESS;
    }
    return contents;
}

/* How many rows of x a kernel takes at once: the number at the end of its name. */
static int64_t inputs_at_once(const char *name) {
    const char *m = strstr(name, "_m");
    while (m && strstr(m + 1, "_m"))
        m = strstr(m + 1, "_m");
    const int64_t number = m ? atol(m + 2) : 0;
    return number > 0 ? number : 1;
}

/* Those that stage x move 16 bytes of it at once: _s4_r1_m1_d1_g8 and so on. */
static size_t x_alignment(const launch *l) {
    return strstr(l->function->name, "_f32_s") ? 16 : sizeof(float);
}

static void project(const launch *l, size_t n_weights) {
    struct {
        int64_t K, N, ne02, ne10, ne12, ne0, m;
        uint32_t r2, r3;
    } p;
    memcpy(&p, l->parameters[l->function->n - 1], sizeof p);
    const int64_t covered = (int64_t)l->grid[1] * l->grid[2] * inputs_at_once(l->function->name);
    const int64_t m = covered < p.m ? covered : p.m;
    int64_t *rows = malloc((size_t)p.N * sizeof *rows);
    for (int64_t i = 0; i < p.N; i++)
        rows[i] = i;
    const float *x = argument(l, n_weights, (size_t)(p.m * p.K) * sizeof *x, x_alignment(l));
    for (size_t i = 0; i < n_weights; i++) {
        const uint8_t *weight = argument(l, i, (size_t)(p.N * (p.K / 32)) * 18, 2);
        float *result =
            argument(l, n_weights + 1 + i, (size_t)(p.m * p.N) * sizeof *result, sizeof *result);
        if (x && weight && result)
            canonical_order(weight, x, m, p.K, rows, p.N, result);
    }
    free(rows);
}

/* Thread by thread, as the grid has them. */
static void split(const launch *l, size_t width) {
    uint32_t p[5];
    memcpy(p, l->parameters[4], sizeof p);
    const size_t seq = p[0], channels = p[4], word = width * sizeof(float);
    const unsigned char *from = argument(l, 0, seq * channels * sizeof(float), word);
    unsigned char *to[3];
    for (size_t i = 0; i < 3; i++)
        to[i] = argument(l, i + 1, seq * p[i + 1] * sizeof(float), word);
    if (lost != SUCCESS)
        return;
    for (size_t z = 0; z < l->grid[2]; z++)
        for (size_t y = 0; y < l->grid[1]; y++) {
            const size_t row = y + l->grid[1] * z;
            for (size_t x = 0; x < (size_t)l->grid[0] * l->block[0]; x++) {
                size_t channel = x, part = 0;
                if (row >= seq || x >= channels / width)
                    continue;
                while (channel >= p[part + 1] / width)
                    channel -= p[1 + part++] / width;
                memcpy(to[part] + (row * (p[part + 1] / width) + channel) * word,
                       from + (row * (channels / width) + x) * word, word);
            }
        }
}

/* A GPU knows nothing of the calling thread's rounding. */
static void run_kernel(const launch *l) {
    const char *name = l->function->name;
    fenv_t callers;
    fegetenv(&callers);
    fesetenv(FE_DFL_ENV);
    if (strncmp(name, "kernel_mul_mv_q4_0_f32", 22) == 0)
        project(l, 1);
    else if (strncmp(name, "kernel_fused_dual_proj_q4_0_f32", 31) == 0)
        project(l, 2);
    else if (strcmp(name, "qkv_split_f32") == 0)
        split(l, 1);
    else if (strcmp(name, "qkv_split_f32x4") == 0)
        split(l, 4);
    else
        report("there is no kernel %s here", name);
    fesetenv(&callers);
}

/* ---- The stream --------------------------------------------------------------------------------
 */

typedef struct task {
    enum { TO_DEVICE, FROM_DEVICE, LAUNCH } kind;
    void *host;
    CUdeviceptr device;
    size_t size;
    launch launch;
    struct task *next;
} task;

static task *tasks, **last_task = &tasks;

static void copy(const task *t) {
    unsigned char *device = translate(t->device, t->size);
    if (!device) {
        report("a copy of %zu bytes is not within device memory", t->size);
        lost = ILLEGAL_ADDRESS;
    } else if (t->kind == TO_DEVICE) {
        memcpy(device, t->host, t->size);
    } else {
        memcpy(t->host, device, t->size);
    }
}

static void run_tasks(void) {
    while (tasks) {
        task *t = tasks;
        tasks = t->next;
        if (lost == SUCCESS && t->kind == LAUNCH)
            run_kernel(&t->launch);
        else if (lost == SUCCESS)
            copy(t);
        free(t);
    }
    last_task = &tasks;
}

/* Nothing works any more, and what was begun will never be done. */
static void lose(CUresult code) {
    lost = code;
    run_tasks();
}

static void add_task(const task *given) {
    task *t = malloc(sizeof *t);
    *t = *given;
    t->next = NULL;
    *last_task = t;
    last_task = &t->next;
}

static CUresult transfer(const char *name, int kind, void *host, CUdeviceptr device, size_t size,
                         const void *stream) {
    const CUresult result = enter_context(name);
    const size_t used = strlen(transfers);
    if (result != SUCCESS)
        return leave(result);
    if (stream != &the_stream || size == 0) {
        report("%s of %zu bytes, stream %p", name, size, stream);
        return leave(INVALID_HANDLE);
    }
    if (!translate(device, size)) {
        report("%s of %zu bytes is not within device memory", name, size);
        return leave(INVALID_VALUE);
    }
    snprintf(transfers + used, sizeof transfers - used, "%c%zu ", kind == TO_DEVICE ? '>' : '<',
             size);
    add_task(&(task){.kind = kind, .host = host, .device = device, .size = size});
    if (!is_registered(host, size))
        run_tasks();
    return leave(lost);
}

/* ---- The functions of libcuda ------------------------------------------------------------------
 */

CUresult cuGetErrorName(CUresult code, const char **name) {
    *name = NULL;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code)
            *name = errors[i].name;
    return *name ? SUCCESS : INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult code, const char **text) {
    *text = NULL;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code)
            *text = errors[i].text;
    return *text ? SUCCESS : INVALID_VALUE;
}

CUresult cuDriverGetVersion(int *version) {
    const CUresult result = enter("cuDriverGetVersion");
    *version = (int)machine_version;
    return leave(result);
}

CUresult cuInit(unsigned flags) {
    CUresult result = enter("cuInit");
    if (result == SUCCESS)
        result = flags ? INVALID_VALUE : (CUresult)machine_init;
    initialised |= result == SUCCESS;
    return leave(result);
}

CUresult cuDeviceGetCount(int *count) {
    const CUresult result = enter("cuDeviceGetCount");
    *count = (int)machine_count;
    return leave(result);
}

CUresult cuDeviceGet(int *device, int ordinal) {
    const CUresult result = enter("cuDeviceGet");
    *device = 7;
    return leave(result != SUCCESS ? result : ordinal < machine_count ? SUCCESS : INVALID_DEVICE);
}

CUresult cuDeviceGetName(char *name, int size, int device) {
    const CUresult result = enter("cuDeviceGetName");
    snprintf(name, (size_t)size, "Fake GPU");
    return leave(result != SUCCESS ? result : device == 7 ? SUCCESS : INVALID_DEVICE);
}

CUresult cuDeviceGetAttribute(int *value, int attribute, int device) {
    const CUresult result = enter("cuDeviceGetAttribute");
    *value = (int)(attribute == 75 ? machine_major : attribute == 76 ? machine_minor : -1);
    return leave(result != SUCCESS ? result : device == 7 ? SUCCESS : INVALID_DEVICE);
}

CUresult cuDeviceTotalMem_v2(size_t *size, int device) {
    const CUresult result = enter("cuDeviceTotalMem");
    *size = (size_t)machine_memory;
    return leave(result != SUCCESS ? result : device == 7 ? SUCCESS : INVALID_DEVICE);
}

CUresult cuDevicePrimaryCtxRetain(void **context, int device) {
    const CUresult result = enter("cuDevicePrimaryCtxRetain");
    if (result != SUCCESS || device != 7)
        return leave(result != SUCCESS ? result : INVALID_DEVICE);
    *context = &the_context;
    retained++;
    return leave(SUCCESS);
}

CUresult cuDevicePrimaryCtxRelease_v2(int device) {
    const CUresult result = enter("cuDevicePrimaryCtxRelease");
    if (device != 7 || retained < 1)
        report("cuDevicePrimaryCtxRelease of what is not retained");
    retained--;
    return leave(result);
}

CUresult cuCtxPushCurrent_v2(void *context) {
    const CUresult result = enter("cuCtxPushCurrent");
    if (result != SUCCESS)
        return leave(result);
    if (context != &the_context || retained < 1) {
        report("cuCtxPushCurrent of no context");
        return leave(INVALID_CONTEXT);
    }
    depth++;
    return leave(SUCCESS);
}

CUresult cuCtxPopCurrent_v2(void **context) {
    const CUresult result = enter("cuCtxPopCurrent");
    *context = &the_context;
    if (depth < 1) {
        report("cuCtxPopCurrent without a current context");
        return leave(INVALID_CONTEXT);
    }
    depth--; /* also where an error is returned: it is an earlier call's */
    return leave(result);
}

CUresult cuStreamCreate(void **stream, unsigned flags) {
    const CUresult result = enter_context("cuStreamCreate");
    if (result != SUCCESS)
        return leave(result);
    if (flags != 1)
        report("a stream that is ordered with the default stream");
    *stream = &the_stream;
    streams++;
    return leave(SUCCESS);
}

CUresult cuStreamSynchronize(void *stream) {
    const CUresult result = enter_context("cuStreamSynchronize");
    if (result != SUCCESS)
        return leave(result);
    if (stream != &the_stream) {
        report("cuStreamSynchronize of no stream");
        return leave(INVALID_HANDLE);
    }
    run_tasks();
    return leave(lost);
}

CUresult cuModuleLoadDataEx(void **module, const void *image, unsigned n, int *options,
                            void **values) {
    const CUresult result = enter_context("cuModuleLoadDataEx");
    char *log = NULL;
    size_t size = 0;
    for (unsigned i = 0; i < n; i++) {
        if (options[i] == 5)
            log = values[i];
        if (options[i] == 6)
            size = (size_t)values[i];
    }
    if (result == INVALID_PTX && log)
        snprintf(log, size, "ptxas fatal: what the fake says in its log");
    if (result != SUCCESS)
        return leave(result);
    if (!strstr(image, ".version") || !strstr(image, ".target sm_75")) {
        report("cuModuleLoadDataEx of what is no PTX for sm_75");
        return leave(INVALID_PTX);
    }
    *module = (void *)(uintptr_t)image; /* it stays where it is: the tests embed it */
    return leave(SUCCESS);
}

/* The sizes of an entry's parameters: ".param .u64 NAME" or ".param .align 8 .b8 NAME[64]". */
static bool read_parameters(const char *text, function *f) {
    const char *end = strchr(text, ')');
    while (end && (text = strstr(text, ".param")) && text < end && f->n < MAX_PARAMETERS) {
        const char *bracket = strchr(text, '[');
        const char *comma = strchr(text, ',');
        const char *after = comma && comma < end ? comma : end;
        f->sizes[f->n++] = bracket && bracket < after ? (size_t)atol(bracket + 1) : 8;
        text = after;
    }
    return f->n > 0;
}

CUresult cuModuleGetFunction(void **result_function, void *module, const char *name) {
    char entry[160];
    const CUresult result = enter_context("cuModuleGetFunction");
    if (result != SUCCESS)
        return leave(result);
    snprintf(entry, sizeof entry, ".entry %s(", name);
    const char *text = strstr(module, entry);
    if (!text)
        return leave(NOT_FOUND);
    function *f = calloc(1, sizeof *f);
    static function *all; /* as long as the process */
    snprintf(f->name, sizeof f->name, "%s", name);
    if (!read_parameters(text, f))
        report("no parameters of %s", name);
    f->next = all;
    all = f;
    *result_function = f;
    return leave(SUCCESS);
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size) {
    static CUdeviceptr next = 0xC0DE000000000000; /* no address of the host's */
    const CUresult result = enter_context("cuMemAlloc");
    if (result != SUCCESS || size == 0)
        return leave(result != SUCCESS ? result : INVALID_VALUE);
    if (size > (size_t)machine_memory - allocated)
        return leave(OUT_OF_MEMORY);
    allocation *a = malloc(sizeof *a);
    *a = (allocation){next, size, malloc(size), allocations};
    memset(a->contents, 0xff, size);
    allocations = a;
    allocated += size;
    next += (size + 8191) / 4096 * 4096;
    *address = a->address;
    return leave(SUCCESS);
}

CUresult cuMemFree_v2(CUdeviceptr address) {
    const CUresult result = enter_context("cuMemFree");
    if (lost == SUCCESS)
        run_tasks();
    for (allocation **place = &allocations; *place; place = &(*place)->next)
        if ((*place)->address == address) {
            allocation *a = *place;
            *place = a->next;
            allocated -= a->size;
            free(a->contents);
            free(a);
            return leave(result); /* it may be an earlier call's error */
        }
    report("cuMemFree of what is not allocated");
    return leave(INVALID_VALUE);
}

CUresult cuMemHostRegister_v2(void *memory, size_t size, unsigned flags) {
    const CUresult result = enter_context("cuMemHostRegister");
    unsigned char *start = memory;
    if (result != SUCCESS || flags != 0)
        return leave(result != SUCCESS ? result : INVALID_VALUE);
    check_registrations();
    for (registration *r = registrations; r; r = r->next)
        if (start < r->memory + r->size && r->memory < start + size) {
            report("memory is registered twice");
            return leave(ALREADY_REGISTERED);
        }
    if (!is_mapped(memory, size))
        report("memory that is registered is not there");
    registration *r = malloc(sizeof *r);
    *r = (registration){memory, size, registrations};
    registrations = r;
    return leave(SUCCESS);
}

CUresult cuMemHostUnregister(void *memory) {
    const CUresult result = enter_context("cuMemHostUnregister");
    if (result != SUCCESS)
        return leave(result);
    check_registrations();
    for (registration **place = &registrations; *place; place = &(*place)->next)
        if ((*place)->memory == memory) {
            registration *r = *place;
            for (task *t = tasks; t; t = t->next)
                if (t->kind != LAUNCH && r->memory <= (unsigned char *)t->host &&
                    (unsigned char *)t->host < r->memory + r->size)
                    report("memory is unregistered while a copy of it is under way");
            *place = r->next;
            free(r);
            return leave(SUCCESS);
        }
    report("cuMemHostUnregister of what is not registered");
    return leave(NOT_REGISTERED);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, void *stream) {
    return transfer("cuMemcpyHtoDAsync", TO_DEVICE, (void *)(uintptr_t)from, to, size, stream);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, void *stream) {
    return transfer("cuMemcpyDtoHAsync", FROM_DEVICE, to, from, size, stream);
}

CUresult cuLaunchKernel(void *given, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                        void *stream, void **arguments, void **extra) {
    const function *f = given;
    const CUresult result = enter_context("cuLaunchKernel");
    if (result != SUCCESS)
        return leave(result);
    const unsigned long long threads = (unsigned long long)block_x * block_y * block_z;
    if (stream != &the_stream || extra || shared || grid_x < 1 || grid_x > INT32_MAX ||
        grid_y < 1 || grid_y > 65535 || grid_z < 1 || grid_z > 65535 || threads < 1 ||
        threads > 256 || block_z > 64) {
        report("launch of %s: grid %u x %u x %u, block %u x %u x %u", f->name, grid_x, grid_y,
               grid_z, block_x, block_y, block_z);
        return leave(INVALID_VALUE);
    }
    task t = {.kind = LAUNCH,
              .launch = {.function = f,
                         .grid = {grid_x, grid_y, grid_z},
                         .block = {block_x, block_y, block_z}}};
    for (size_t i = 0; i < f->n; i++)
        memcpy(t.launch.parameters[i], arguments[i], f->sizes[i]);
    add_task(&t);
    return leave(SUCCESS);
}

/* ---- For the tests -----------------------------------------------------------------------------
 */

/* The n-th call from now on of a function, "" being any, returns the code. For good: the context is
 * lost then, and every call that needs it returns the code. n = 0 puts everything back. */
void fake_cuda_fail(const char *name, long n, int code, bool for_good) {
    pthread_mutex_lock(&lock);
    snprintf(fault.name, sizeof fault.name, "%s", name);
    fault.failed[0] = '\0';
    fault.n = n;
    fault.code = code;
    fault.for_good = for_good;
    if (n == 0)
        lost = SUCCESS;
    pthread_mutex_unlock(&lock);
}

/* The function that failed because of that, "" if none has. */
const char *fake_cuda_failed(void) {
    return fault.failed;
}

/* Calls of a function, "" being all. */
long fake_cuda_calls(const char *name) {
    pthread_mutex_lock(&lock);
    long n = *name ? 0 : calls;
    for (size_t i = 0; functions[i].name; i++)
        n += strcmp(functions[i].name, name) == 0 ? functions[i].calls : 0;
    pthread_mutex_unlock(&lock);
    return n;
}

/* Transfers since the last time: ">bytes" to the device, "<bytes" from it. */
const char *fake_cuda_transfers(void) {
    static char copy_of[sizeof transfers];
    pthread_mutex_lock(&lock);
    strcpy(copy_of, transfers);
    transfers[0] = '\0';
    pthread_mutex_unlock(&lock);
    return copy_of;
}

/* What rules were broken, a line each. */
const char *fake_cuda_reports(void) {
    pthread_mutex_lock(&lock);
    check_registrations();
    pthread_mutex_unlock(&lock);
    return reports;
}

size_t fake_cuda_allocated(void) {
    return allocated;
}

size_t fake_cuda_registered(void) {
    size_t size = 0;
    for (registration *r = registrations; r; r = r->next)
        size += r->size;
    return size;
}

/* Contexts that are current on this thread, how often the primary one is retained, and tasks that
 * nobody has waited for. */
long fake_cuda_depth(void) {
    return depth;
}

long fake_cuda_retained(void) {
    return retained;
}

long fake_cuda_in_flight(void) {
    long n = 0;
    for (task *t = tasks; t; t = t->next)
        n++;
    return n;
}

/* As when the process ends. */
void fake_cuda_deinitialise(void) {
    deinitialised = true;
}
