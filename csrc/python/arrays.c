// Array arguments and results.
//
// What NumPy already holds as the kernels need it is used in place; an array that lies in a buffer
// of the library's own is used as a part of that, which no device copies. Everything else, and
// every complaint, goes through the Python module mlxops._arrays.

#include "python/core.h"

mo_buffer *mo_py_find_buffer(PyArrayObject *array, size_t *offset) {
    PyObject *base = PyArray_BASE(array);
    while (base && PyArray_Check(base))
        base = PyArray_BASE((PyArrayObject *)base);
    if (!base || !Py_IS_TYPE(base, mo_py_BufferType))
        return NULL;
    mo_buffer *buffer = mo_py_buffer_of(base);
    const size_t size = mo_buffer_size(buffer), needed = (size_t)PyArray_NBYTES(array);
    *offset = (uintptr_t)PyArray_DATA(array) - (uintptr_t)mo_buffer_contents(buffer);
    return *offset <= size && needed <= size - *offset ? buffer : NULL;
}

// Fills in the rest of an argument whose object is set. false with a MemoryError.
static bool describe(mo_py_array *argument) {
    PyArrayObject *object = argument->object;
    argument->array.ndim = PyArray_NDIM(object);
    argument->array.shape = argument->shape;
    for (int i = 0; i < PyArray_NDIM(object); i++)
        argument->shape[i] = PyArray_DIM(object, i);
    mo_buffer *own = mo_py_find_buffer(object, &argument->array.offset);
    if (own) {
        argument->array.buffer = mo_buffer_retain(own);
        return true;
    }
    argument->array.offset = 0;
    const mo_status status = mo_buffer_borrow(PyArray_DATA(object), (size_t)PyArray_NBYTES(object),
                                              &argument->array.buffer);
    if (status != MO_OK)
        mo_py_raise(status);
    return status == MO_OK;
}

static bool is_ready_input(PyObject *object) {
    return PyArray_CheckExact(object) && PyArray_TYPE((PyArrayObject *)object) == NPY_FLOAT32 &&
           PyArray_ISCARRAY_RO((PyArrayObject *)object);
}

static bool is_ready_output(PyObject *object) {
    return PyArray_CheckExact(object) && PyArray_TYPE((PyArrayObject *)object) == NPY_FLOAT32 &&
           PyArray_ISCARRAY((PyArrayObject *)object);
}

bool mo_py_input(PyObject *object, const char *name, PyObject *outs, const mo_py_encoder *encoder,
                 mo_py_array *input) {
    *input = (mo_py_array){.object = NULL};
    // A conversion would read now what the encoder itself has still to compute.
    const mo_py_encoder *reader = is_ready_input(object) ? encoder : NULL;
    if (PyArray_Check(object) && !mo_py_check_pending(reader, name, (PyArrayObject *)object))
        return false;
    if (is_ready_input(object)) {
        input->object = (PyArrayObject *)Py_NewRef(object);
        return describe(input);
    }
    PyObject *text = PyUnicode_FromString(name);
    if (!text)
        return false;
    PyObject *array = mo_py_call_arrays("as_float32", text, object, outs ? outs : Py_None);
    Py_DECREF(text);
    if (!array)
        return false;
    if (!is_ready_input(array)) { // whatever Python code said, this is what counts
        PyErr_Format(PyExc_TypeError, "%s could not be made a C-contiguous float32 array", name);
        Py_DECREF(array);
        return false;
    }
    input->object = (PyArrayObject *)array;
    return describe(input);
}

// Takes a reference to one array of out=. false with an exception.
static bool take_output(PyObject *object, const char *name, mo_py_array *output) {
    if (!is_ready_output(object)) {
        PyObject *text = PyUnicode_FromString(name);
        PyObject *checked = text ? mo_py_call_arrays("check_out", text, object, NULL) : NULL;
        Py_XDECREF(text);
        if (!checked)
            return false;
        Py_DECREF(checked);
    }
    output->object = (PyArrayObject *)Py_NewRef(object);
    return true;
}

bool mo_py_take_outputs(PyObject *out, int n, mo_py_array *outputs) {
    for (int i = 0; i < n; i++)
        outputs[i] = (mo_py_array){.object = NULL};
    if (!out || out == Py_None)
        return true;
    const bool several = PyTuple_Check(out) || PyList_Check(out);
    if (!several && n == 1)
        return take_output(out, "out", &outputs[0]);

    // A tuple of our own: what is called below may change a list.
    PyObject *items = several ? PySequence_Tuple(out) : PyTuple_Pack(1, out);
    if (!items)
        return false;
    bool taken = PyTuple_GET_SIZE(items) == n;
    if (!taken)
        PyErr_Format(PyExc_ValueError,
                     "out holds %zd arrays; it needs exactly one for each result, %d",
                     PyTuple_GET_SIZE(items), n);
    for (int i = 0; i < n && taken; i++) {
        char name[16];
        snprintf(name, sizeof name, "out[%d]", i);
        taken = take_output(PyTuple_GET_ITEM(items, i), name, &outputs[i]);
    }
    Py_DECREF(items);
    return taken;
}

bool mo_py_describe_outputs(int n, const mo_py_encoder *encoder, mo_py_array *outputs) {
    for (int i = 0; i < n; i++) {
        PyArrayObject *object = outputs[i].object;
        if (!object)
            continue;
        if (!PyArray_Check(object) || PyArray_TYPE(object) != NPY_FLOAT32 ||
            !PyArray_ISCARRAY(object)) {
            PyErr_SetString(PyExc_ValueError,
                            "out is not what it says: results are written into writable "
                            "C-contiguous float32 memory only");
            return false;
        }
        if (!mo_py_check_pending(encoder, "out", object) || !describe(&outputs[i]))
            return false;
    }
    return true;
}

void mo_py_clear(mo_py_array *argument) {
    mo_buffer_release(argument->array.buffer);
    argument->array.buffer = NULL;
    Py_CLEAR(argument->object);
}

PyObject *mo_py_new_array(mo_buffer *buffer, int ndim, const npy_intp *shape) {
    void *contents = mo_buffer_contents(buffer);
    PyObject *owner = mo_py_new_buffer(buffer);
    if (!owner)
        return NULL;
    PyObject *array = PyArray_New(&PyArray_Type, ndim, shape, NPY_FLOAT32, NULL, contents, 0,
                                  NPY_ARRAY_CARRAY, NULL);
    if (!array) {
        Py_DECREF(owner);
        return NULL;
    }
    if (PyArray_SetBaseObject((PyArrayObject *)array, owner) < 0) { // takes owner in any case
        Py_DECREF(array);
        return NULL;
    }
    return array;
}

PyObject *mo_py_result(mo_py_array *output, const mo_py_array *input, int64_t last) {
    if (output->object)
        return Py_NewRef((PyObject *)output->object);
    npy_intp shape[NPY_MAXDIMS];
    const int ndim = input->array.ndim;
    for (int i = 0; i < ndim; i++)
        shape[i] = (npy_intp)input->shape[i];
    shape[ndim - 1] = (npy_intp)last;
    mo_buffer *buffer = output->array.buffer;
    output->array.buffer = NULL;
    return mo_py_new_array(buffer, ndim, shape);
}
