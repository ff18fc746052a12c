// The type Buffer: what keeps a buffer's memory alive for arrays and matrices.

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
