// From a status to an exception.

#include "python/core.h"

PyObject *mo_py_DeviceError;

static PyObject *exception_of(mo_status status) {
    switch (status) {
    case MO_INVALID_VALUE:
        return PyExc_ValueError;
    case MO_OUT_OF_MEMORY:
        return PyExc_MemoryError;
    case MO_DEVICE_ERROR:
        return mo_py_DeviceError;
    case MO_OK:
    case MO_MISUSE:
    case MO_INTERRUPTED:
        break;
    }
    return PyExc_RuntimeError;
}

PyObject *mo_py_raise(mo_status status) {
    if (status == MO_INTERRUPTED && PyErr_Occurred()) // by the interrupt check
        return NULL;
    const char *message = mo_status_message();
    PyObject *text = PyUnicode_DecodeUTF8(message, (Py_ssize_t)strlen(message), "replace");
    if (text) {
        PyErr_SetObject(exception_of(status), text);
        Py_DECREF(text);
    }
    return NULL;
}
