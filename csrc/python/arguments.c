// Arguments that are no arrays.

#include "python/core.h"

static int find_name(const mo_py_signature *signature, PyObject *keyword) {
    for (int i = 0; i < MO_PY_MAX_PARAMETERS && signature->names[i]; i++)
        if (PyUnicode_CompareWithASCIIString(keyword, signature->names[i]) == 0)
            return i;
    return -1;
}

bool mo_py_parse(const mo_py_signature *signature, PyObject *const *args, Py_ssize_t n_args,
                 PyObject *kwnames, PyObject **values) {
    memset(values, 0, MO_PY_MAX_PARAMETERS * sizeof *values);
    if (n_args > signature->n_positional) {
        PyErr_Format(PyExc_TypeError, "%s() takes at most %d positional arguments (%zd given)",
                     signature->function, signature->n_positional, n_args);
        return false;
    }
    for (Py_ssize_t i = 0; i < n_args; i++)
        values[i] = args[i];
    const Py_ssize_t n_keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    for (Py_ssize_t i = 0; i < n_keywords; i++) {
        PyObject *keyword = PyTuple_GET_ITEM(kwnames, i);
        const int index = find_name(signature, keyword);
        if (index < 0 || values[index]) {
            PyErr_Format(PyExc_TypeError,
                         index < 0 ? "%s() has no parameter %R" : "%s() got %R more than once",
                         signature->function, keyword);
            return false;
        }
        values[index] = args[n_args + i];
    }
    for (int i = 0; i < signature->n_required; i++)
        if (!values[i]) {
            PyErr_Format(PyExc_TypeError, "%s() needs the argument '%s'", signature->function,
                         signature->names[i]);
            return false;
        }
    return true;
}

bool mo_py_int64(PyObject *object, const char *name, int64_t *value) {
    if (!PyIndex_Check(object)) {
        PyErr_Format(PyExc_TypeError, "%s is %.100s; it must be an int", name,
                     Py_TYPE(object)->tp_name);
        return false;
    }
    PyObject *index = PyNumber_Index(object);
    if (!index)
        return false;
    *value = PyLong_AsLongLong(index);
    Py_DECREF(index);
    return *value != -1 || !PyErr_Occurred();
}

// The name of a device, from itself or from an object that has one. NULL with an exception.
static PyObject *device_name(PyObject *object) {
    PyObject *name =
        PyUnicode_Check(object) ? Py_NewRef(object) : PyObject_GetAttrString(object, "name");
    if (name && PyUnicode_Check(name))
        return name;
    if (name || PyErr_ExceptionMatches(PyExc_AttributeError))
        PyErr_Format(PyExc_TypeError,
                     "a device is a name such as 'cpu', or one of mlxops.devices(); not %.100s",
                     Py_TYPE(object)->tp_name);
    Py_XDECREF(name);
    return NULL;
}

bool mo_py_device(PyObject *object, mo_device **device) {
    if (!object || object == Py_None) {
        *device = mo_default_device();
        return true;
    }
    PyObject *name = device_name(object);
    if (!name)
        return false;
    Py_ssize_t size;
    const char *text = PyUnicode_AsUTF8AndSize(name, &size);
    mo_status status = MO_DEVICE_ERROR;
    if (!text || strlen(text) != (size_t)size) // what no device can be called
        PyErr_Format(mo_py_DeviceError, "there is no device %R here", name);
    else if ((status = mo_device_find(text, device)) != MO_OK)
        mo_py_raise(status);
    Py_DECREF(name);
    return status == MO_OK;
}

PyObject *mo_py_call_arrays(const char *function, PyObject *a, PyObject *b, PyObject *c) {
    PyObject *module = PyImport_ImportModule("mlxops._arrays");
    if (!module)
        return NULL;
    PyObject *callable = PyObject_GetAttrString(module, function);
    Py_DECREF(module);
    if (!callable)
        return NULL;
    PyObject *result = PyObject_CallFunctionObjArgs(callable, a, b, c, NULL);
    Py_DECREF(callable);
    return result;
}
