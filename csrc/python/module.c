// The extension module mlxops._core.

#define MLXOPS_IMPORTS_NUMPY
#include "python/core.h"

#include <pthread.h>
#include <stdatomic.h>

static bool add_exceptions(PyObject *module) {
    mo_py_DeviceError = PyErr_NewExceptionWithDoc(
        "mlxops.DeviceError",
        "There is no such device, or it failed; the message has the driver's own text.",
        PyExc_RuntimeError, NULL);
    return mo_py_DeviceError &&
           PyModule_AddObjectRef(module, "DeviceError", mo_py_DeviceError) == 0;
}

// A warning where the environment asks for something that cannot be.
static bool check_environment(void) {
    if (mo_check_environment() == MO_OK)
        return true;
    const char *message = mo_status_message();
    PyObject *text = PyUnicode_DecodeUTF8(message, (Py_ssize_t)strlen(message), "replace");
    const bool warned = text && PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "%U", text) == 0;
    Py_XDECREF(text);
    return warned;
}

// Python's main thread, which alone runs signal handlers.
static atomic_ulong main_thread;

static bool find_main_thread(void) {
    PyObject *threading = PyImport_ImportModule("threading");
    PyObject *thread = threading ? PyObject_CallMethod(threading, "main_thread", NULL) : NULL;
    PyObject *ident = thread ? PyObject_GetAttrString(thread, "ident") : NULL;
    if (ident)
        atomic_store(&main_thread, PyLong_AsUnsignedLong(ident));
    Py_XDECREF(threading);
    Py_XDECREF(thread);
    Py_XDECREF(ident);
    return !PyErr_Occurred();
}

// The thread that forks is the main one of the child.
static void become_main_thread(void) {
    atomic_store(&main_thread, PyThread_get_thread_ident());
}

// A signal handler's exception, KeyboardInterrupt as a rule, stays set for the function that called
// the operation. (Other threads have no signals to check. Nor may they wait for the GIL here: where
// the interpreter ends they never get it, and threads of the pool would work on for a caller that
// is gone.)
static bool check_signals(void) {
    if (PyThread_get_thread_ident() != atomic_load(&main_thread))
        return false;
    const PyGILState_STATE state = PyGILState_Ensure();
    const bool raised = PyErr_CheckSignals() < 0;
    PyGILState_Release(state);
    return raised;
}

static int execute(PyObject *module) {
    static bool executed; // types and exceptions are one for the process
    if (executed) {
        PyErr_SetString(PyExc_ImportError, "mlxops cannot be loaded a second time, nor into a "
                                           "subinterpreter");
        return -1;
    }
    import_array1(-1);
    if (!add_exceptions(module) || !mo_py_init_buffer(module) || !mo_py_init_matrix(module) ||
        !mo_py_init_encoder(module) || PyModule_AddFunctions(module, mo_py_buffers) < 0 ||
        PyModule_AddFunctions(module, mo_py_operations) < 0 ||
        PyModule_AddFunctions(module, mo_py_settings) < 0 ||
        PyModule_AddFunctions(module, mo_py_tuning) < 0 ||
        PyModule_AddStringConstant(module, "__version__", MLXOPS_VERSION) < 0 ||
        !check_environment() || !find_main_thread())
        return -1;
    if (pthread_atfork(NULL, NULL, become_main_thread) != 0) {
        PyErr_NoMemory();
        return -1;
    }
    mo_set_interrupt_check(check_signals);
    executed = true;
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)execute},
#if PY_VERSION_HEX >= 0x030c0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
    {0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "mlxops._core",
    .m_doc = "The C core of mlxops. Use it through the package mlxops.",
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__core(void) {
    return PyModuleDef_Init(&definition);
}
