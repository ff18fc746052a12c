// The choice among a projection's kernels: its functions for Python, and what
// `python -m mlxops tune` stored.

#include "ops/projection_variants.h"
#include "python/core.h"

#include <string.h>

// ---- What is stored ----------------------------------------------------------------------------

// Devices that have been looked at: it is done once for each. (Under the GIL.)
static const mo_device *seen[8];

// Whether this is the first time.
static bool see(const mo_device *device) {
    size_t i = 0;
    while (i < sizeof seen / sizeof *seen && seen[i] && seen[i] != device)
        i++;
    if (i == sizeof seen / sizeof *seen || seen[i])
        return false;
    seen[i] = device;
    return true;
}

bool mo_py_apply_tuning(const mo_device *device) {
    if (!see(device) || !mo_projection_has_choice(mo_device_name(device)))
        return true;
    char description[256];
    mo_device_describe(device, description, sizeof description);
    PyObject *module = PyImport_ImportModule("mlxops._tuning");
    PyObject *result =
        module ? PyObject_CallMethod(module, "apply", "ss", mo_device_name(device), description)
               : NULL;
    Py_XDECREF(module);
    Py_XDECREF(result);
    return result != NULL;
}

// ---- Functions ---------------------------------------------------------------------------------

PyDoc_STRVAR(
    projection_variants_doc,
    "projection_variants($module, /)\n--\n\n"
    "The kernels that a projection can use, by name, with the rows of x that each takes at\n"
    "once. Those that a device uses are its choice by shape; all give the same bits.");

static PyObject *projection_variants(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    PyObject *variants = PyDict_New();
    for (size_t i = 0; i < MO_N_PROJECTION_VARIANTS && variants; i++) {
        const mo_projection_variant *variant = mo_projection_variant_at(i);
        PyObject *inputs = PyLong_FromLongLong(variant->inputs);
        if (!inputs || PyDict_SetItemString(variants, variant->name, inputs) < 0)
            Py_CLEAR(variants);
        Py_XDECREF(inputs);
    }
    return variants;
}

PyDoc_STRVAR(
    projection_classes_doc,
    "projection_classes($module, /)\n--\n\n"
    "The largest m, and the largest number of rows of all weights together, of each class of\n"
    "shapes but the last, which has no end.");

// A new tuple of the limits, NULL with an exception.
static PyObject *tuple_of(const int64_t *limits, size_t n) {
    PyObject *tuple = PyTuple_New((Py_ssize_t)n);
    for (size_t i = 0; i < n && tuple; i++) {
        PyObject *limit = PyLong_FromLongLong(limits[i]);
        if (limit)
            PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, limit);
        else
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *projection_classes(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    const mo_projection_classes *classes = mo_projection_classes_of_shapes();
    PyObject *m = tuple_of(classes->m, MO_N_M_LIMITS);
    PyObject *rows = tuple_of(classes->rows, MO_N_ROW_LIMITS);
    PyObject *both = m && rows ? PyTuple_Pack(2, m, rows) : NULL;
    Py_XDECREF(m);
    Py_XDECREF(rows);
    return both;
}

PyDoc_STRVAR(force_projection_variant_doc,
             "force_projection_variant($module, name, /)\n--\n\n"
             "Make every projection of the process use one variant, for tests and measurements;\n"
             "None ends that. Operands that it does not take are a ValueError then.");

static PyObject *force_projection_variant(PyObject *module, PyObject *name) {
    (void)module;
    const char *text = name == Py_None ? NULL : PyUnicode_AsUTF8(name);
    if (!text && name != Py_None)
        return NULL;
    const mo_status status = mo_projection_force_variant(text);
    if (status != MO_OK)
        return mo_py_raise(status);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(projection_choice_doc,
             "projection_choice($module, device, m, rows, /)\n--\n\n"
             "The name of the variant that a device uses for m rows of x and `rows` rows of all\n"
             "weights together.");

static PyObject *projection_choice(PyObject *module, PyObject *args) {
    (void)module;
    const char *device;
    long long m, rows;
    if (!PyArg_ParseTuple(args, "sLL:projection_choice", &device, &m, &rows))
        return NULL;
    const size_t index = mo_projection_choice(device, m, rows);
    return PyUnicode_FromString(mo_projection_variant_at(index)->name);
}

PyDoc_STRVAR(
    set_projection_choice_doc,
    "set_projection_choice($module, device, m, rows, name, /)\n--\n\n"
    "Change that for all shapes of the same class (projection_classes). ValueError if the\n"
    "device has no choice, or there is no such variant.");

static PyObject *set_projection_choice(PyObject *module, PyObject *args) {
    (void)module;
    const char *device, *name;
    long long m, rows;
    if (!PyArg_ParseTuple(args, "sLLs:set_projection_choice", &device, &m, &rows, &name))
        return NULL;
    const mo_status status = mo_projection_set_choice(device, m, rows, name);
    if (status != MO_OK)
        return mo_py_raise(status);
    Py_RETURN_NONE;
}

PyMethodDef mo_py_tuning[] = {
    {"projection_variants", projection_variants, METH_NOARGS, projection_variants_doc},
    {"projection_classes", projection_classes, METH_NOARGS, projection_classes_doc},
    {"force_projection_variant", force_projection_variant, METH_O, force_projection_variant_doc},
    {"projection_choice", projection_choice, METH_VARARGS, projection_choice_doc},
    {"set_projection_choice", set_projection_choice, METH_VARARGS, set_projection_choice_doc},
    {NULL, NULL, 0, NULL},
};
