// The type Buffer: what keeps a buffer's memory alive for arrays and matrices. And arrays that lie
// in such memory.

#include "python/core.h"

PyTypeObject *mo_py_BufferType;

typedef struct buffer_object {
    PyObject_HEAD mo_buffer *buffer;
    Py_buffer mapping; // of the object whose memory was borrowed; obj is NULL for our own
} buffer_object;

static buffer_object *allocate(void) {
    buffer_object *self = PyObject_New(buffer_object, mo_py_BufferType);
    if (self) {
        self->buffer = NULL;
        self->mapping = (Py_buffer){.obj = NULL};
    }
    return self;
}

PyObject *mo_py_new_buffer(mo_buffer *buffer) {
    buffer_object *self = allocate();
    if (!self) {
        mo_buffer_release(buffer);
        return NULL;
    }
    self->buffer = buffer;
    return (PyObject *)self;
}

mo_buffer *mo_py_buffer_of(PyObject *object) {
    return ((buffer_object *)object)->buffer;
}

static PyObject *borrow(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *memory;
    (void)type;
    if (kwargs && PyDict_GET_SIZE(kwargs) > 0) {
        PyErr_SetString(PyExc_TypeError, "Buffer() takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "O:Buffer", &memory))
        return NULL;
    buffer_object *self = allocate();
    if (!self)
        return NULL;
    if (PyObject_GetBuffer(memory, &self->mapping, PyBUF_SIMPLE) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    const mo_status status =
        mo_buffer_borrow_pages(self->mapping.buf, (size_t)self->mapping.len, &self->buffer);
    if (status != MO_OK) {
        Py_DECREF(self);
        return mo_py_raise(status);
    }
    mo_buffer_freeze(self->buffer);
    return (PyObject *)self;
}

static void deallocate(PyObject *object) {
    buffer_object *self = (buffer_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    mo_buffer_release(self->buffer);
    PyBuffer_Release(&self->mapping);
    PyObject_Free(self);
    Py_DECREF(type);
}

PyDoc_STRVAR(
    doc, "Buffer(memory)\n--\n\n"
         "Memory that operations use in place: of a mapped file with the buffer protocol, which "
         "is\nkept alive and locked and must not change, or the library's own.");

static PyType_Slot slots[] = {
    {Py_tp_doc, (void *)doc},
    {Py_tp_new, (void *)borrow},
    {Py_tp_dealloc, (void *)deallocate},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "mlxops._core.Buffer",
    .basicsize = sizeof(buffer_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};

bool mo_py_init_buffer(PyObject *module) {
    mo_py_BufferType = (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
    return mo_py_BufferType && PyModule_AddType(module, mo_py_BufferType) == 0;
}

// ---- Arrays in buffers -------------------------------------------------------------------------

// The bytes of a float32 array; 4 if it has no elements. false with a ValueError.
static bool count_bytes(const PyArray_Dims *shape, size_t *nbytes) {
    *nbytes = sizeof(float);
    bool fits = true;
    for (int i = 0; i < shape->len; i++) {
        if (shape->ptr[i] < 0) {
            PyErr_SetString(PyExc_ValueError, "negative dimensions are not allowed");
            return false;
        }
        if (shape->ptr[i] > 0)
            fits &= !__builtin_mul_overflow(*nbytes, (size_t)shape->ptr[i], nbytes);
    }
    if (!fits || *nbytes > PY_SSIZE_T_MAX) {
        PyErr_SetString(PyExc_ValueError, "the array is too large: its size in bytes overflows");
        return false;
    }
    return true;
}

PyDoc_STRVAR(
    empty_doc,
    "empty($module, shape, /)\n--\n\n"
    "Return a new float32 array in memory that every device uses as it is.\n\n"
    "An ordinary NumPy array, whose contents are whatever was there. Operations copy nothing of\n"
    "it, nor of its C-contiguous views and slices, where it is an input or given as out=. (A GPU\n"
    "with memory of its own moves the data there and back.)\n\n"
    "Parameters\n"
    "----------\n"
    "shape : int or tuple of ints\n\n"
    "Raises\n"
    "------\n"
    "ValueError\n"
    "    If a dimension is negative, or the size overflows.\n"
    "MemoryError\n");

static PyObject *empty(PyObject *module, PyObject *object) {
    (void)module;
    PyArray_Dims shape = {.ptr = NULL};
    size_t nbytes;
    if (PyArray_IntpConverter(object, &shape) != NPY_SUCCEED)
        return NULL;
    PyObject *array = NULL;
    if (count_bytes(&shape, &nbytes)) {
        mo_buffer *buffer;
        const mo_status status = mo_buffer_alloc(nbytes, &buffer);
        array =
            status == MO_OK ? mo_py_new_array(buffer, shape.len, shape.ptr) : mo_py_raise(status);
    }
    PyDimMem_FREE(shape.ptr);
    return array;
}

PyDoc_STRVAR(is_shared_doc, "is_shared($module, array, /)\n--\n\n"
                            "Whether an array lies in memory that every device uses as it is.");

static PyObject *is_shared(PyObject *module, PyObject *object) {
    (void)module;
    size_t offset;
    return PyBool_FromLong(PyArray_Check(object) &&
                           mo_py_find_buffer((PyArrayObject *)object, &offset));
}

PyDoc_STRVAR(copied_doc, "copied($module, /)\n--\n\n"
                         "Bytes copied for operations since the process began: in, and out.");

static PyObject *copied(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    uint64_t in, out;
    mo_copied(&in, &out);
    return Py_BuildValue("(KK)", (unsigned long long)in, (unsigned long long)out);
}

PyDoc_STRVAR(count_copy_doc, "count_copy($module, nbytes, /)\n--\n\n"
                             "Count bytes that were copied for an operation.");

static PyObject *count_copy(PyObject *module, PyObject *nbytes) {
    (void)module;
    const size_t in = PyLong_AsSize_t(nbytes);
    if (in == (size_t)-1 && PyErr_Occurred())
        return NULL;
    mo_count_copy(in, 0);
    Py_RETURN_NONE;
}

PyMethodDef mo_py_buffers[] = {
    {"empty", empty, METH_O, empty_doc},
    {"is_shared", is_shared, METH_O, is_shared_doc},
    {"copied", copied, METH_NOARGS, copied_doc},
    {"count_copy", count_copy, METH_O, count_copy_doc},
    {NULL, NULL, 0, NULL},
};
