// Devices, threads, memory, the choice of kernels, and the check of GGUF files: the functions that
// are no operations.

#include "cpu/read_memory.h"
#include "python/core.h"

PyDoc_STRVAR(devices_doc, "devices($module, /)\n--\n\n"
                          "The devices as (name, description) pairs, the preferred one first.");

static PyObject *devices(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    const size_t n = mo_device_count();
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (size_t i = 0; i < n && list; i++) {
        char description[256];
        const mo_device *device = mo_device_at(i);
        mo_device_describe(device, description, sizeof description);
        PyObject *pair = Py_BuildValue("(ss)", mo_device_name(device), description);
        if (pair)
            PyList_SET_ITEM(list, (Py_ssize_t)i, pair);
        else
            Py_CLEAR(list);
    }
    return list;
}

PyDoc_STRVAR(missing_devices_doc, "missing_devices($module, /)\n--\n\n"
                                  "The devices that cannot be used here, as (name, reason) pairs.");

static PyObject *missing_devices(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    const char *name, *reason;
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && mo_device_missing(i, &name, &reason); i++) {
        PyObject *pair = Py_BuildValue("(ss)", name, reason);
        if (!pair || PyList_Append(list, pair) < 0)
            Py_CLEAR(list);
        Py_XDECREF(pair);
    }
    return list;
}

PyDoc_STRVAR(default_device_doc, "default_device($module, /)\n--\n\n"
                                 "The name of the device that operations run on by default.");

static PyObject *default_device(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    return PyUnicode_FromString(mo_device_name(mo_default_device()));
}

PyDoc_STRVAR(set_default_device_doc,
             "set_default_device($module, name, /)\n--\n\n"
             "Choose the device that operations run on by default, in the whole process.\n\n"
             "Parameters\n"
             "----------\n"
             "name : str or Device\n"
             "    One of devices(), or its name.\n\n"
             "Raises\n"
             "------\n"
             "DeviceError\n"
             "    If there is no such device.\n");

static PyObject *set_default_device(PyObject *module, PyObject *name) {
    (void)module;
    mo_device *device;
    if (name == Py_None) {
        PyErr_SetString(PyExc_TypeError, "a device is needed, not None");
        return NULL;
    }
    if (!mo_py_device(name, &device))
        return NULL;
    mo_set_default_device(device);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(
    get_num_threads_doc,
    "get_num_threads($module, /)\n--\n\n"
    "How many threads an operation on the CPU device may use.\n\n"
    "At first the number in the environment variable MLXOPS_NUM_THREADS, else that of the\n"
    "processors which the process may use: its affinity and its cgroup's quota.");

static PyObject *get_num_threads(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    return PyLong_FromLong(mo_num_threads());
}

PyDoc_STRVAR(set_num_threads_doc,
             "set_num_threads($module, n, /)\n--\n\n"
             "Set how many threads an operation on the CPU device may use, 256 at the most.\n\n"
             "The results do not depend on it.\n\n"
             "Raises\n"
             "------\n"
             "ValueError\n"
             "    If n is below 1.\n");

static PyObject *set_num_threads(PyObject *module, PyObject *n) {
    (void)module;
    PyObject *index = PyNumber_Index(n);
    if (!index)
        return NULL;
    int overflow;
    const long long number = PyLong_AsLongLongAndOverflow(index, &overflow);
    Py_DECREF(index);
    const mo_status status = mo_set_num_threads(overflow ? overflow * INT64_MAX : number);
    if (status != MO_OK)
        return mo_py_raise(status);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(cache_info_doc, "cache_info($module, /)\n--\n\n"
                             "Bytes of freed buffers that are kept, and the most that are kept.");

static PyObject *cache_info(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    return Py_BuildValue("(nn)", (Py_ssize_t)mo_buffer_cache_size(),
                         (Py_ssize_t)mo_buffer_cache_limit());
}

PyDoc_STRVAR(clear_cache_doc,
             "clear_cache($module, /)\n--\n\n"
             "Give the memory of freed results and matrices back to the system, and\n"
             "what a GPU keeps for later calls.");

static PyObject *clear_cache(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    Py_BEGIN_ALLOW_THREADS
    mo_buffer_cache_clear();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

PyDoc_STRVAR(read_memory_doc,
             "read_memory($module, memory, /)\n--\n\n"
             "Read all bytes of a contiguous buffer, by all threads of the CPU device.\n\n"
             "Returns the exclusive-or of its uint64 words, the last one completed with zeros.\n"
             "It is there to be timed: the read bandwidth.");

static PyObject *read_memory(PyObject *module, PyObject *memory) {
    (void)module;
    Py_buffer view;
    if (PyObject_GetBuffer(memory, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    uint64_t combined;
    mo_status status;
    Py_BEGIN_ALLOW_THREADS
    status = mo_read_memory(view.buf, (size_t)view.len, &combined);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&view);
    if (status != MO_OK)
        return mo_py_raise(status);
    return PyLong_FromUnsignedLongLong(combined);
}

PyDoc_STRVAR(
    gguf_check_doc,
    "gguf_check($module, file, types, /)\n--\n\n"
    "Check the bytes of a GGUF file: every count, length, offset and tensor must lie within.\n\n"
    "types holds, by number of the tensor type, the elements and the bytes of its blocks as\n"
    "two uint32; 0, 0 where there is no such type. ValueError says what is wrong.");

static PyObject *gguf_check(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer file, types;
    if (!PyArg_ParseTuple(args, "y*y*:gguf_check", &file, &types))
        return NULL;
    mo_status status;
    Py_BEGIN_ALLOW_THREADS
    status = mo_gguf_check(file.buf, (size_t)file.len, types.buf,
                           (size_t)types.len / sizeof(mo_gguf_type));
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&file);
    PyBuffer_Release(&types);
    if (status != MO_OK)
        return mo_py_raise(status);
    Py_RETURN_NONE;
}

PyMethodDef mo_py_settings[] = {
    {"devices", devices, METH_NOARGS, devices_doc},
    {"missing_devices", missing_devices, METH_NOARGS, missing_devices_doc},
    {"default_device", default_device, METH_NOARGS, default_device_doc},
    {"set_default_device", set_default_device, METH_O, set_default_device_doc},
    {"get_num_threads", get_num_threads, METH_NOARGS, get_num_threads_doc},
    {"set_num_threads", set_num_threads, METH_O, set_num_threads_doc},
    {"cache_info", cache_info, METH_NOARGS, cache_info_doc},
    {"clear_cache", clear_cache, METH_NOARGS, clear_cache_doc},
    {"read_memory", read_memory, METH_O, read_memory_doc},
    {"gguf_check", gguf_check, METH_VARARGS, gguf_check_doc},
    {NULL, NULL, 0, NULL},
};
