// A bounded look at the structure of a GGUF file, so that what reads it later can trust its counts,
// lengths and offsets.

#include "mlxops.h"
#include "status.h"

#include <string.h>

#define MAX_DIMENSIONS 4
#define MAX_ARRAY_NESTING 4
#define MAX_ELEMENTS (1 << 21) // in arrays of metadata: room for the largest vocabularies
#define DEFAULT_ALIGNMENT 32

// Types of metadata values, in the numbering of the format.
enum { UINT32 = 4, STRING = 8, ARRAY = 9, N_VALUE_TYPES = 13 };

// Bytes of a value of each fixed-size type.
static const unsigned char value_bytes[N_VALUE_TYPES] = {
    [0] = 1, [1] = 1, [2] = 2,  [3] = 2,  [4] = 4,  [5] = 4,
    [6] = 4, [7] = 1, [10] = 8, [11] = 8, [12] = 8,
};

// A file that is read from front to back.
typedef struct reader {
    const unsigned char *bytes;
    size_t size;
    size_t at;
    uint64_t elements; // in arrays so far
} reader;

// A string in the file; not terminated.
typedef struct text {
    const char *bytes;
    uint64_t length;
} text;

// A tensor's description.
typedef struct tensor {
    text name;
    uint64_t offset; // from the start of the data
    uint64_t bytes;
} tensor;

#define NAME_FORMAT "'%.*s'"
#define NAME_ARGUMENTS(name) (int)((name).length < 128 ? (name).length : 128), (name).bytes

static bool read_bytes(reader *r, uint64_t n, const void **bytes) {
    if (n > r->size - r->at)
        return false;
    *bytes = r->bytes + r->at;
    r->at += (size_t)n;
    return true;
}

// Little-endian, as the file is.
static bool read_number(reader *r, int n_bytes, uint64_t *number) {
    const void *bytes;
    if (!read_bytes(r, (uint64_t)n_bytes, &bytes))
        return false;
    *number = 0;
    for (int i = n_bytes - 1; i >= 0; i--)
        *number = *number << 8 | ((const unsigned char *)bytes)[i];
    return true;
}

static bool read_text(reader *r, text *t) {
    const void *bytes;
    if (!read_number(r, 8, &t->length) || !read_bytes(r, t->length, &bytes))
        return false;
    t->bytes = bytes;
    return true;
}

static mo_status truncated(const char *part) {
    return mo_fail(MO_INVALID_VALUE, "the file ends within %s: it is truncated or damaged", part);
}

static mo_status skip_value(reader *r, text key, uint64_t type, int nesting);

static mo_status skip_array(reader *r, text key, int nesting) {
    uint64_t type, length;
    const void *elements;
    if (!read_number(r, 4, &type) || !read_number(r, 8, &length))
        return truncated("its metadata");
    if (nesting == MAX_ARRAY_NESTING)
        return mo_fail(MO_INVALID_VALUE, "metadata " NAME_FORMAT " nests arrays too deeply",
                       NAME_ARGUMENTS(key));
    if (length > MAX_ELEMENTS - r->elements)
        return mo_fail(MO_INVALID_VALUE,
                       "metadata " NAME_FORMAT
                       " has an array of %llu elements; at most %d are read "
                       "in all arrays together",
                       NAME_ARGUMENTS(key), (unsigned long long)length, MAX_ELEMENTS);
    r->elements += length;
    if (type < N_VALUE_TYPES && value_bytes[type])
        return read_bytes(r, length * value_bytes[type], &elements) ? MO_OK
                                                                    : truncated("its metadata");
    for (uint64_t i = 0; i < length; i++) {
        const mo_status status = skip_value(r, key, type, nesting + 1);
        if (status != MO_OK)
            return status;
    }
    return MO_OK;
}

static mo_status skip_value(reader *r, text key, uint64_t type, int nesting) {
    const void *value;
    text string;
    if (type == ARRAY)
        return skip_array(r, key, nesting);
    if (type == STRING)
        return read_text(r, &string) ? MO_OK : truncated("its metadata");
    if (type >= N_VALUE_TYPES)
        return mo_fail(MO_INVALID_VALUE, "metadata " NAME_FORMAT " has the unknown type %llu",
                       NAME_ARGUMENTS(key), (unsigned long long)type);
    return read_bytes(r, value_bytes[type], &value) ? MO_OK : truncated("its metadata");
}

static mo_status check_alignment(reader r, uint64_t type, uint64_t *alignment) {
    if (type != UINT32 || !read_number(&r, 4, alignment) || *alignment < 8 ||
        (*alignment & (*alignment - 1)) != 0)
        return mo_fail(
            MO_INVALID_VALUE,
            "metadata 'general.alignment' is no uint32 that is a power of two from 8 on");
    return MO_OK;
}

static mo_status check_metadata(reader *r, uint64_t count, uint64_t *alignment) {
    static const char alignment_key[] = "general.alignment";
    for (uint64_t i = 0; i < count; i++) {
        text key;
        uint64_t type;
        if (!read_text(r, &key) || !read_number(r, 4, &type))
            return truncated("its metadata");
        mo_status status = MO_OK;
        if (key.length == sizeof alignment_key - 1 &&
            memcmp(key.bytes, alignment_key, sizeof alignment_key - 1) == 0)
            status = check_alignment(*r, type, alignment);
        if (status == MO_OK)
            status = skip_value(r, key, type, 0);
        if (status != MO_OK)
            return status;
    }
    return MO_OK;
}

// The tensor's bytes, from its dimensions (elements of a row first) and its type.
static mo_status measure_tensor(tensor *t, const uint64_t *dimensions, uint64_t n_dimensions,
                                mo_gguf_type type) {
    uint64_t elements = 1;
    for (uint64_t i = 0; i < n_dimensions; i++) {
        if (dimensions[i] == 0)
            return mo_fail(MO_INVALID_VALUE, "tensor " NAME_FORMAT " has a dimension of 0",
                           NAME_ARGUMENTS(t->name));
        if (__builtin_mul_overflow(elements, dimensions[i], &elements) || elements > INT64_MAX)
            return mo_fail(MO_INVALID_VALUE, "tensor " NAME_FORMAT " has 2^63 elements or more",
                           NAME_ARGUMENTS(t->name));
    }
    if (dimensions[0] % type.block_elements != 0)
        return mo_fail(
            MO_INVALID_VALUE,
            "tensor " NAME_FORMAT " has rows of %llu elements; its type's blocks have %u",
            NAME_ARGUMENTS(t->name), (unsigned long long)dimensions[0], type.block_elements);
    if (__builtin_mul_overflow(elements / type.block_elements, (uint64_t)type.block_bytes,
                               &t->bytes))
        return mo_fail(MO_INVALID_VALUE, "tensor " NAME_FORMAT " has a size that overflows",
                       NAME_ARGUMENTS(t->name));
    return MO_OK;
}

static mo_status read_tensor(reader *r, const mo_gguf_type *types, size_t n_types, tensor *t) {
    uint64_t n_dimensions, dimensions[MAX_DIMENSIONS], type;
    if (!read_text(r, &t->name) || !read_number(r, 4, &n_dimensions))
        return truncated("its list of tensors");
    if (n_dimensions < 1 || n_dimensions > MAX_DIMENSIONS)
        return mo_fail(MO_INVALID_VALUE,
                       "tensor " NAME_FORMAT " has %llu dimensions; 1 to %d are possible",
                       NAME_ARGUMENTS(t->name), (unsigned long long)n_dimensions, MAX_DIMENSIONS);
    for (uint64_t i = 0; i < n_dimensions; i++)
        if (!read_number(r, 8, &dimensions[i]))
            return truncated("its list of tensors");
    if (!read_number(r, 4, &type) || !read_number(r, 8, &t->offset))
        return truncated("its list of tensors");
    if (type >= n_types || types[type].block_elements == 0)
        return mo_fail(MO_INVALID_VALUE, "tensor " NAME_FORMAT " has the unknown type %llu",
                       NAME_ARGUMENTS(t->name), (unsigned long long)type);
    return measure_tensor(t, dimensions, n_dimensions, types[type]);
}

static mo_status check_place(const tensor *t, uint64_t data_bytes, uint64_t alignment) {
    if (t->offset % alignment != 0)
        return mo_fail(
            MO_INVALID_VALUE,
            "tensor " NAME_FORMAT " is at offset %llu, no multiple of the alignment %llu",
            NAME_ARGUMENTS(t->name), (unsigned long long)t->offset, (unsigned long long)alignment);
    if (t->offset > data_bytes || t->bytes > data_bytes - t->offset)
        return mo_fail(MO_INVALID_VALUE,
                       "tensor " NAME_FORMAT
                       " reaches past the end of the file: it needs %llu bytes "
                       "from offset %llu of the data, which has %llu",
                       NAME_ARGUMENTS(t->name), (unsigned long long)t->bytes,
                       (unsigned long long)t->offset, (unsigned long long)data_bytes);
    return MO_OK;
}

// The data begins after the list of tensors; so the list is read twice, first for its end.
static mo_status check_tensors(reader *r, uint64_t count, uint64_t alignment,
                               const mo_gguf_type *types, size_t n_types) {
    const reader list = *r;
    tensor t;
    for (uint64_t i = 0; i < count; i++) {
        const mo_status status = read_tensor(r, types, n_types, &t);
        if (status != MO_OK)
            return status;
    }
    const uint64_t data = ((uint64_t)r->at + alignment - 1) / alignment * alignment;
    const uint64_t data_bytes = data < r->size ? r->size - data : 0;
    *r = list;
    for (uint64_t i = 0; i < count; i++) {
        mo_status status = read_tensor(r, types, n_types, &t);
        if (status == MO_OK)
            status = check_place(&t, data_bytes, alignment);
        if (status != MO_OK)
            return status;
    }
    return MO_OK;
}

mo_status mo_gguf_check(const void *file, size_t size, const mo_gguf_type *types, size_t n_types) {
    reader r = {.bytes = file, .size = size};
    const void *magic;
    uint64_t version, n_tensors, n_metadata, alignment = DEFAULT_ALIGNMENT;
    if (!read_bytes(&r, 4, &magic) || memcmp(magic, "GGUF", 4) != 0)
        return mo_fail(MO_INVALID_VALUE, "not a GGUF file");
    if (!read_number(&r, 4, &version))
        return truncated("its header");
    if (version << 48 == 0)
        return mo_fail(MO_INVALID_VALUE, "a big-endian GGUF file; little-endian ones can be read");
    if (version != 2 && version != 3)
        return mo_fail(MO_INVALID_VALUE,
                       "GGUF version %llu; little-endian files of version 2 and "
                       "3 can be read",
                       (unsigned long long)version);
    if (!read_number(&r, 8, &n_tensors) || !read_number(&r, 8, &n_metadata))
        return truncated("its header");
    const mo_status status = check_metadata(&r, n_metadata, &alignment);
    if (status != MO_OK)
        return status;
    return check_tensors(&r, n_tensors, alignment, types, n_types);
}
