/* What a compiled shader and the executor agree on. Included by C and by the shader's C++. */
#ifndef SIM_ABI_H
#define SIM_ABI_H

/* A kernel's argument as the executor passes it: a pointer, or up to three unsigned components. */
struct sim_value {
    void *pointer;
    unsigned component[3];
};

enum sim_argument_kind {
    SIM_BUFFER = 1,
    SIM_THREADGROUP_MEMORY,
    SIM_THREAD_POSITION_IN_GRID,
    SIM_THREADGROUP_POSITION_IN_GRID,
    SIM_THREAD_POSITION_IN_THREADGROUP,
    SIM_THREADS_PER_THREADGROUP,
    SIM_DISPATCH_THREADS_PER_THREADGROUP,
    SIM_THREADGROUPS_PER_GRID,
    SIM_THREADS_PER_GRID,
    SIM_THREAD_INDEX_IN_THREADGROUP, /* from here on scalars only */
    SIM_THREAD_INDEX_IN_SIMDGROUP,
    SIM_SIMDGROUP_INDEX_IN_THREADGROUP,
    SIM_SIMDGROUPS_PER_THREADGROUP,
    SIM_THREADS_PER_SIMDGROUP,
};

/* What the front end reads from the parameter's text ... */
struct sim_argument {
    int kind;
    int index;  /* of [[buffer(n)]] and [[threadgroup(n)]] */
    char space; /* 'd'evice, 'c'onstant, 't'hreadgroup, 0 for none */
    const char *name;
};

/* ... and what the compiler knows of its type. */
struct sim_type {
    unsigned char pointer, reference, read_only, components;
    unsigned size, align; /* of the pointee, or of one component */
};

struct sim_kernel {
    const char *name;
    void (*call)(const struct sim_value *arguments);
    int argument_count;
    const struct sim_argument *arguments;
    const struct sim_type *types;
};

struct sim_function_constant {
    unsigned index;
    const char *name;
    const void *address;
    unsigned size;
};

/* Where in the source a rendezvous of threads stands. */
struct sim_site {
    const char *operation;
    const char *file;
    int line, column;
};

#endif
