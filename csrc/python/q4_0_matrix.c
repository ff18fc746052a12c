// The type Q4_0Matrix: an immutable weight matrix. Slices and GGUF tensors share their Buffer.

#include "python/core.h"

#include <stddef.h>

PyTypeObject *mo_py_Q4_0MatrixType;

typedef struct matrix_object {
    PyObject_HEAD mo_q4_0_matrix matrix; // its buffer is the owner's
    PyObject *owner;                     // a Buffer
} matrix_object;

static mo_q4_0_matrix *matrix_of(PyObject *object) {
    return &((matrix_object *)object)->matrix;
}

const mo_q4_0_matrix *mo_py_matrix_of(PyObject *object, const char *name) {
    if (Py_IS_TYPE(object, mo_py_Q4_0MatrixType))
        return matrix_of(object);
    PyErr_Format(PyExc_TypeError,
                 "%s is %.100s, not a Q4_0Matrix; Q4_0Matrix.quantize(array) makes "
                 "one",
                 name, Py_TYPE(object)->tp_name);
    return NULL;
}

// The size of a matrix that exists, so that it cannot be wrong.
static size_t size_of(const mo_q4_0_matrix *matrix) {
    size_t size = 0;
    mo_q4_0_size(matrix->N, matrix->K, &size);
    return size;
}

static const unsigned char *blocks_of(const mo_q4_0_matrix *matrix) {
    return (const unsigned char *)mo_buffer_contents(matrix->buffer) + matrix->offset;
}

// A matrix in a Buffer, of which it takes a new reference.
static PyObject *new_matrix(PyObject *owner, size_t offset, int64_t N, int64_t K) {
    matrix_object *self = PyObject_New(matrix_object, mo_py_Q4_0MatrixType);
    if (!self)
        return NULL;
    self->matrix =
        (mo_q4_0_matrix){.buffer = mo_py_buffer_of(owner), .offset = offset, .N = N, .K = K};
    self->owner = Py_NewRef(owner);
    return (PyObject *)self;
}

// A matrix with a Buffer of its own, whose blocks are yet to be written at *blocks. Then it is
// frozen.
static PyObject *allocate_matrix(int64_t N, int64_t K, void **blocks) {
    size_t size;
    mo_buffer *buffer;
    mo_status status = mo_q4_0_size(N, K, &size);
    if (status == MO_OK)
        status = mo_buffer_alloc(size, &buffer);
    if (status != MO_OK)
        return mo_py_raise(status);
    *blocks = mo_buffer_contents(buffer);
    PyObject *owner = mo_py_new_buffer(buffer);
    if (!owner)
        return NULL;
    PyObject *self = new_matrix(owner, 0, N, K);
    Py_DECREF(owner);
    return self;
}

// The blocks have been written, and stay as they are. NULL is allowed; returns what it is given.
static PyObject *freeze(PyObject *self) {
    if (self)
        mo_buffer_freeze(matrix_of(self)->buffer);
    return self;
}

static void deallocate(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    Py_DECREF(((matrix_object *)object)->owner);
    PyObject_Free(object);
    Py_DECREF(type);
}

static bool parse_shape(PyObject *object, int64_t *N, int64_t *K) {
    PyObject *shape = PySequence_Check(object) ? PySequence_Tuple(object) : NULL;
    if (!shape || PyTuple_GET_SIZE(shape) != 2) {
        if (!PyErr_Occurred())
            PyErr_Format(shape ? PyExc_ValueError : PyExc_TypeError,
                         "shape is %R; it must be two numbers, (N, K)", object);
        Py_XDECREF(shape);
        return false;
    }
    const bool parsed = mo_py_int64(PyTuple_GET_ITEM(shape, 0), "N", N) &&
                        mo_py_int64(PyTuple_GET_ITEM(shape, 1), "K", K);
    Py_DECREF(shape);
    return parsed;
}

// ---- Making matrices ---------------------------------------------------------------------------

static PyObject *make_directly(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)type, (void)args, (void)kwargs;
    PyErr_SetString(PyExc_TypeError,
                    "make a Q4_0Matrix with Q4_0Matrix.quantize(array), "
                    "Q4_0Matrix.from_blocks(buffer, shape) or mlxops.gguf.load(path)[name]");
    return NULL;
}

PyDoc_STRVAR(
    quantize_doc,
    "quantize($type, array, /)\n--\n\n"
    "Quantise a matrix to Q4_0: the same bytes as gguf.quantize.\n\n"
    "Parameters\n"
    "----------\n"
    "array : array_like of float16, float32 or float64\n"
    "    Shape (N, K), K a multiple of 32. float64 is rounded to float32 first.\n\n"
    "Raises\n"
    "------\n"
    "ValueError\n"
    "    If the shape is wrong; if a value is NaN or infinite, or so large that its block's\n"
    "    scale does not fit a half: the message names the row.\n"
    "TypeError\n"
    "    If the dtype is another.\n");

static PyObject *quantize(PyObject *type, PyObject *object) {
    (void)type;
    PyArrayObject *array = (PyArrayObject *)mo_py_call_arrays("as_matrix", object, NULL, NULL);
    if (!array)
        return NULL;
    const int64_t N = PyArray_DIM(array, 0), K = PyArray_DIM(array, 1);
    void *blocks;
    PyObject *self = allocate_matrix(N, K, &blocks);
    if (self) {
        mo_status status;
        Py_BEGIN_ALLOW_THREADS
        status = mo_q4_0_quantize(PyArray_DATA(array), N, K, blocks);
        Py_END_ALLOW_THREADS
        if (status != MO_OK) {
            Py_CLEAR(self);
            mo_py_raise(status);
        }
    }
    Py_DECREF(array);
    return freeze(self);
}

// A matrix with a copy of the view's bytes.
static PyObject *copy_blocks(Py_buffer *view, int64_t N, int64_t K) {
    size_t size;
    const mo_status status = mo_q4_0_size(N, K, &size);
    if (status != MO_OK)
        return mo_py_raise(status);
    if (view->itemsize != 1)
        return PyErr_Format(PyExc_TypeError,
                            "the blocks are bytes, not elements of %zd bytes; an "
                            "array's .view(numpy.uint8) has its bytes",
                            view->itemsize);
    if ((size_t)view->len != size)
        return PyErr_Format(PyExc_ValueError,
                            "the buffer of blocks is too %s: shape (%lld, %lld) "
                            "needs %zu bytes, %zd are there",
                            (size_t)view->len < size ? "small" : "large", (long long)N,
                            (long long)K, size, view->len);
    void *blocks;
    PyObject *self = allocate_matrix(N, K, &blocks);
    if (self && PyBuffer_ToContiguous(blocks, view, view->len, 'C') < 0)
        Py_CLEAR(self);
    return freeze(self);
}

PyDoc_STRVAR(from_blocks_doc,
             "from_blocks($type, buffer, shape)\n--\n\n"
             "Make a matrix of Q4_0 blocks as a GGUF file holds them. They are copied.\n\n"
             "Parameters\n"
             "----------\n"
             "buffer : bytes-like\n"
             "    N * K / 32 blocks of 18 bytes, row by row.\n"
             "shape : (int, int)\n"
             "    (N, K), K a multiple of 32.\n\n"
             "Raises\n"
             "------\n"
             "ValueError\n"
             "    If the shape is wrong, or the buffer's size is not exactly what it needs.\n"
             "TypeError\n"
             "    If the buffer does not hold bytes.\n");

static PyObject *from_blocks(PyObject *type, PyObject *const *args, Py_ssize_t n_args,
                             PyObject *kwnames) {
    static const mo_py_signature signature = {"from_blocks", 2, 2, {"buffer", "shape"}};
    PyObject *values[MO_PY_MAX_PARAMETERS];
    int64_t N, K;
    Py_buffer view;
    (void)type;
    if (!mo_py_parse(&signature, args, n_args, kwnames, values) ||
        !parse_shape(values[1], &N, &K) || PyObject_GetBuffer(values[0], &view, PyBUF_FULL_RO) < 0)
        return NULL;
    PyObject *self = copy_blocks(&view, N, K);
    PyBuffer_Release(&view);
    return self;
}

PyDoc_STRVAR(from_buffer_doc, "_from_buffer($type, buffer, offset, shape)\n--\n\n"
                              "A matrix over blocks in a Buffer, which are not copied.");

static PyObject *from_buffer(PyObject *type, PyObject *const *args, Py_ssize_t n_args,
                             PyObject *kwnames) {
    static const mo_py_signature signature = {"_from_buffer", 3, 3, {"buffer", "offset", "shape"}};
    PyObject *values[MO_PY_MAX_PARAMETERS];
    int64_t offset, N, K;
    size_t size;
    (void)type;
    if (!mo_py_parse(&signature, args, n_args, kwnames, values) ||
        !mo_py_int64(values[1], "offset", &offset) || !parse_shape(values[2], &N, &K))
        return NULL;
    if (!Py_IS_TYPE(values[0], mo_py_BufferType))
        return PyErr_Format(PyExc_TypeError, "buffer is %.100s, not a Buffer",
                            Py_TYPE(values[0])->tp_name);
    const mo_status status = mo_q4_0_size(N, K, &size);
    if (status != MO_OK)
        return mo_py_raise(status);
    const size_t there = mo_buffer_size(mo_py_buffer_of(values[0]));
    if (offset < 0 || (size_t)offset > there || size > there - (size_t)offset)
        return PyErr_Format(PyExc_ValueError,
                            "the buffer is too small: %zu bytes from %lld on are "
                            "needed, it has %zu",
                            size, (long long)offset, there);
    return new_matrix(values[0], (size_t)offset, N, K);
}

// Checks what is to be stacked and counts its rows. false with an exception.
static bool measure_stack(PyObject *matrices, int64_t *N, int64_t *K) {
    *N = 0;
    *K = 0;
    if (PyTuple_GET_SIZE(matrices) == 0) {
        PyErr_SetString(PyExc_ValueError, "concat() needs at least one Q4_0Matrix");
        return false;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(matrices); i++) {
        char name[48];
        snprintf(name, sizeof name, "matrices[%zd]", i);
        const mo_q4_0_matrix *matrix = mo_py_matrix_of(PyTuple_GET_ITEM(matrices, i), name);
        if (!matrix)
            return false;
        if (i > 0 && matrix->K != *K) {
            PyErr_Format(PyExc_ValueError,
                         "%s has K = %lld, matrices[0] has K = %lld; they must be "
                         "the same",
                         name, (long long)matrix->K, (long long)*K);
            return false;
        }
        *K = matrix->K;
        if (__builtin_add_overflow(*N, matrix->N, N)) {
            PyErr_SetString(PyExc_ValueError, "the number of rows overflows");
            return false;
        }
    }
    return true;
}

PyDoc_STRVAR(concat_doc,
             "concat($type, matrices, /)\n--\n\n"
             "Stack the rows of matrices with the same K: a new matrix.\n\n"
             "With concat([wq, wk, wv]) one projection makes what qkv_split takes apart.\n\n"
             "Raises\n"
             "------\n"
             "ValueError\n"
             "    If there is no matrix, or their K differ.\n"
             "TypeError\n"
             "    If one of them is no Q4_0Matrix.\n");

static PyObject *concat(PyObject *type, PyObject *object) {
    (void)type;
    int64_t N, K;
    void *blocks;
    PyObject *matrices = PySequence_Tuple(object);
    if (!matrices)
        return NULL;
    PyObject *self = measure_stack(matrices, &N, &K) ? allocate_matrix(N, K, &blocks) : NULL;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(matrices) && self; i++) {
        const mo_q4_0_matrix *matrix = matrix_of(PyTuple_GET_ITEM(matrices, i));
        const size_t size = size_of(matrix);
        memcpy(blocks, blocks_of(matrix), size);
        blocks = (unsigned char *)blocks + size;
    }
    Py_DECREF(matrices);
    return freeze(self);
}

// ---- Using matrices ----------------------------------------------------------------------------

PyDoc_STRVAR(dequantize_doc, "dequantize($self, /)\n--\n\n"
                             "The weights as a new float32 array of shape (N, K), exactly.");

static PyObject *dequantize(PyObject *object, PyObject *unused) {
    (void)unused;
    const mo_q4_0_matrix *matrix = matrix_of(object);
    const npy_intp shape[2] = {(npy_intp)matrix->N, (npy_intp)matrix->K};
    size_t size;
    mo_buffer *buffer;
    if (__builtin_mul_overflow((size_t)matrix->N * sizeof(float), (size_t)matrix->K, &size))
        return PyErr_NoMemory();
    mo_status status = mo_buffer_alloc(size, &buffer);
    if (status != MO_OK)
        return mo_py_raise(status);
    Py_BEGIN_ALLOW_THREADS
    status =
        mo_q4_0_dequantize(blocks_of(matrix), matrix->N, matrix->K, mo_buffer_contents(buffer));
    Py_END_ALLOW_THREADS
    if (status != MO_OK) {
        mo_buffer_release(buffer);
        return mo_py_raise(status);
    }
    return mo_py_new_array(buffer, 2, shape);
}

static Py_ssize_t length(PyObject *object) {
    return (Py_ssize_t)matrix_of(object)->N;
}

static PyObject *slice_rows(PyObject *object, PyObject *key) {
    const mo_q4_0_matrix *matrix = matrix_of(object);
    Py_ssize_t start, stop, step;
    if (!PySlice_Check(key))
        return PyErr_Format(PyExc_IndexError,
                            "a Q4_0Matrix is indexed by a slice of rows, as in "
                            "w[3:4], not by %R",
                            key);
    if (PySlice_Unpack(key, &start, &stop, &step) < 0)
        return NULL;
    if (step != 1)
        return PyErr_Format(PyExc_ValueError, "a slice of a Q4_0Matrix has step 1, not %zd", step);
    const Py_ssize_t rows = PySlice_AdjustIndices((Py_ssize_t)matrix->N, &start, &stop, step);
    if (rows == 0)
        return PyErr_Format(PyExc_IndexError, "%R selects none of the %lld rows", key,
                            (long long)matrix->N);
    const size_t row_size = size_of(matrix) / (size_t)matrix->N;
    return new_matrix(((matrix_object *)object)->owner, matrix->offset + (size_t)start * row_size,
                      rows, matrix->K);
}

static PyObject *represent(PyObject *object) {
    const mo_q4_0_matrix *matrix = matrix_of(object);
    return PyUnicode_FromFormat("<Q4_0Matrix of shape (%lld, %lld), %zu bytes>",
                                (long long)matrix->N, (long long)matrix->K, size_of(matrix));
}

static PyObject *get_shape(PyObject *object, void *unused) {
    (void)unused;
    return Py_BuildValue("(LL)", (long long)matrix_of(object)->N, (long long)matrix_of(object)->K);
}

static PyObject *get_nbytes(PyObject *object, void *unused) {
    (void)unused;
    return PyLong_FromSize_t(size_of(matrix_of(object)));
}

static PyObject *get_blocks(PyObject *object, void *unused) {
    (void)unused;
    const mo_q4_0_matrix *matrix = matrix_of(object);
    const npy_intp shape[2] = {
        (npy_intp)matrix->N, (npy_intp)(matrix->K / MO_Q4_0_BLOCK_ELEMENTS * MO_Q4_0_BLOCK_BYTES)};
    PyObject *view =
        PyArray_New(&PyArray_Type, 2, shape, NPY_UINT8, NULL, (void *)blocks_of(matrix), 0,
                    NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED, NULL);
    if (view && PyArray_SetBaseObject((PyArrayObject *)view, Py_NewRef(object)) < 0)
        Py_CLEAR(view);
    return view;
}

PyDoc_STRVAR(reduce_doc, "__reduce__($self, /)\n--\n\nFor pickle: the blocks and the shape.");

static PyObject *reduce(PyObject *object, PyObject *unused) {
    (void)unused;
    PyObject *make = PyObject_GetAttrString((PyObject *)mo_py_Q4_0MatrixType, "from_blocks");
    PyObject *blocks = get_blocks(object, NULL);
    PyObject *shape = get_shape(object, NULL);
    if (make && blocks && shape)
        return Py_BuildValue("(N(NN))", make, blocks, shape);
    Py_XDECREF(make);
    Py_XDECREF(blocks);
    Py_XDECREF(shape);
    return NULL;
}

PyDoc_STRVAR(copy_doc, "__copy__($self, /)\n--\n\nThe matrix itself: it cannot change.");

static PyObject *copy(PyObject *object, PyObject *unused) {
    (void)unused;
    return Py_NewRef(object);
}

// ---- The type ----------------------------------------------------------------------------------

static PyMethodDef methods[] = {
    {"quantize", quantize, METH_O | METH_CLASS, quantize_doc},
    {"from_blocks", MO_PY_FUNCTION(from_blocks), MO_PY_VECTORCALL | METH_CLASS, from_blocks_doc},
    {"_from_buffer", MO_PY_FUNCTION(from_buffer), MO_PY_VECTORCALL | METH_CLASS, from_buffer_doc},
    {"concat", concat, METH_O | METH_CLASS, concat_doc},
    {"dequantize", dequantize, METH_NOARGS, dequantize_doc},
    {"__reduce__", reduce, METH_NOARGS, reduce_doc},
    {"__copy__", copy, METH_NOARGS, copy_doc},
    {"__deepcopy__", copy, METH_O, copy_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef properties[] = {
    {"shape", get_shape, NULL, "(N, K): rows (output_size) and columns (hidden_size).", NULL},
    {"nbytes", get_nbytes, NULL, "Bytes of the blocks: N * K / 32 * 18.", NULL},
    {"blocks", get_blocks, NULL,
     "The blocks as a read-only uint8 array of shape (N, K / 32 * 18), without a copy.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(
    doc,
    "A weight matrix of shape (N, K) in GGUF's Q4_0 format: blocks of 32 weights, d * (q - 8),\n"
    "in 18 bytes. Immutable.\n\n"
    "Made by Q4_0Matrix.quantize, .from_blocks and .concat, and by mlxops.gguf.load. len() is\n"
    "N; w[i:j] is a matrix of those rows, which shares the memory. A GPU with memory of its own\n"
    "has a copy from the first use on, until the matrix is freed or the space is needed.");

static PyType_Slot slots[] = {
    {Py_tp_doc, (void *)doc},
    {Py_tp_new, (void *)make_directly},
    {Py_tp_dealloc, (void *)deallocate},
    {Py_tp_repr, (void *)represent},
    {Py_tp_methods, methods},
    {Py_tp_getset, properties},
    {Py_mp_length, (void *)length},
    {Py_mp_subscript, (void *)slice_rows},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "mlxops.Q4_0Matrix",
    .basicsize = sizeof(matrix_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};

bool mo_py_init_matrix(PyObject *module) {
    mo_py_Q4_0MatrixType = (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
    return mo_py_Q4_0MatrixType && PyModule_AddType(module, mo_py_Q4_0MatrixType) == 0;
}
