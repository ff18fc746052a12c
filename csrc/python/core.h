// The CPython and NumPy layer: what its files share. No arithmetic here; that is the C core's.

#ifndef MLXOPS_PYTHON_CORE_H
#define MLXOPS_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL mlxops_numpy_api
#ifndef MLXOPS_IMPORTS_NUMPY // module.c alone
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

#include "mlxops.h"

// ---- errors.c ----------------------------------------------------------------------------------

extern PyObject *mo_py_DeviceError;

// Raises the exception of a status with this thread's message. Always returns NULL.
PyObject *mo_py_raise(mo_status status);

// ---- arguments.c -------------------------------------------------------------------------------

#define MO_PY_MAX_PARAMETERS 12

// The parameters of a function: first those that may be given by position, the required before the
// optional.
typedef struct mo_py_signature {
    const char *function;
    int n_required;
    int n_positional;
    const char *names[MO_PY_MAX_PARAMETERS]; // up to a NULL
} mo_py_signature;

// Sorts the arguments of a vectorcall into values, in the order of the names (borrowed references,
// NULL where none was given). false with a TypeError.
bool mo_py_parse(const mo_py_signature *signature, PyObject *const *args, Py_ssize_t n_args,
                 PyObject *kwnames, PyObject **values);

// An int argument. false with a TypeError, which has the name, or OverflowError.
bool mo_py_int64(PyObject *object, const char *name, int64_t *value);

// device=: None or not given, a name, or an object with a name. false with an exception.
bool mo_py_device(PyObject *object, mo_device **device);

// Calls a function of the module mlxops._arrays. A new reference, or NULL with an exception.
PyObject *mo_py_call_arrays(const char *function, PyObject *a, PyObject *b, PyObject *c);

// ---- encoder.c ---------------------------------------------------------------------------------

typedef struct mo_py_array mo_py_array;

// The type Encoder: operations that are recorded, and run together.
typedef struct mo_py_encoder mo_py_encoder;
extern PyTypeObject *mo_py_EncoderType;

bool mo_py_init_encoder(PyObject *module);

// The encoder that self is; NULL for the module, whose functions run at once.
mo_py_encoder *mo_py_encoder_of(PyObject *self);

// Whether it can record: false with a RuntimeError where it has ended or is another thread's.
bool mo_py_encoder_is_open(const mo_py_encoder *self);

// Its encoder of the C core.
mo_encoder *mo_py_encoder_handle(const mo_py_encoder *self);

// Before an operation is recorded: its input and results as the encoder can use them, and room for
// the results. false with an exception.
bool mo_py_encoder_prepare(mo_py_encoder *self, mo_py_array *input, const char *input_name,
                           int n_results, const mo_py_array *results);

// An object that must live until the encoder has ended. false with a MemoryError.
bool mo_py_encoder_keep(mo_py_encoder *self, PyObject *object);

// After it has been recorded: what it returned, an array or a tuple of them, is pending.
void mo_py_encoder_add_results(mo_py_encoder *self, int n_results, const mo_py_array *results,
                               PyObject *returned);

// Whether an array can be used by an operation that this encoder records, or, for NULL, that runs
// at once. false with a RuntimeError where another encoder has still to write it.
bool mo_py_check_pending(const mo_py_encoder *self, const char *name, PyArrayObject *array);

// ---- arrays.c ----------------------------------------------------------------------------------

// An array argument of an operation, as the C core takes it.
struct mo_py_array {
    PyArrayObject *object; // NULL: a result that has not been made yet
    mo_array array;
    int64_t shape[NPY_MAXDIMS];
};

// The buffer of the library's own that an array lies in, and at which byte; NULL if it lies
// elsewhere.
mo_buffer *mo_py_find_buffer(PyArrayObject *array, size_t *offset);

// x or qkv as float32, converted where necessary. outs is None or what was given as out=; encoder
// is the one that records the operation, or NULL. false with an exception.
bool mo_py_input(PyObject *object, const char *name, PyObject *outs, const mo_py_encoder *encoder,
                 mo_py_array *input);

// References to what was given as out=: None or not given, or exactly n arrays (for n = 1 the bare
// array too). false with an exception. In any case all of outputs can be cleared.
bool mo_py_take_outputs(PyObject *out, int n, mo_py_array *outputs);

// Where the memory of the outputs is. No Python code may run between this and the use of the
// memory, since it could give the array another. false with an exception.
bool mo_py_describe_outputs(int n, const mo_py_encoder *encoder, mo_py_array *outputs);

// Lets go of what an argument holds.
void mo_py_clear(mo_py_array *argument);

// The object to return for an output: what the caller gave, or a new array over the buffer that the
// operation made, of the input's shape but for the last dimension. NULL with an exception.
PyObject *mo_py_result(mo_py_array *output, const mo_py_array *input, int64_t last);

// A new float32 array over the buffer, whose reference it takes, also when it fails.
PyObject *mo_py_new_array(mo_buffer *buffer, int ndim, const npy_intp *shape);

// ---- buffer.c ----------------------------------------------------------------------------------

// empty(shape), is_shared(array), copied(), count_copy(nbytes).
extern PyMethodDef mo_py_buffers[];

// The Python object that owns a buffer, on behalf of arrays and matrices.
extern PyTypeObject *mo_py_BufferType;

// Takes the buffer's reference, also when it fails.
PyObject *mo_py_new_buffer(mo_buffer *buffer);

mo_buffer *mo_py_buffer_of(PyObject *object);

bool mo_py_init_buffer(PyObject *module);

// ---- q4_0_matrix.c -----------------------------------------------------------------------------

extern PyTypeObject *mo_py_Q4_0MatrixType;

// NULL with a TypeError if the object is no Q4_0Matrix.
const mo_q4_0_matrix *mo_py_matrix_of(PyObject *object, const char *name);

bool mo_py_init_matrix(PyObject *module);

// ---- Tables of methods -------------------------------------------------------------------------

// A function of the vectorcall kind, as PyMethodDef takes it.
#define MO_PY_FUNCTION(name) ((PyCFunction)(void (*)(void))(name))
#define MO_PY_VECTORCALL (METH_FASTCALL | METH_KEYWORDS)

// ---- operations.c, settings.c, tuning.c --------------------------------------------------------

extern PyMethodDef mo_py_operations[];

// The operations: of the module, which run at once, and of an Encoder, which are recorded.
PyObject *mo_py_mul_mv_q4_0(PyObject *self, PyObject *const *args, Py_ssize_t n_args,
                            PyObject *kwnames);
PyObject *mo_py_fused_dual_proj_q4_0(PyObject *self, PyObject *const *args, Py_ssize_t n_args,
                                     PyObject *kwnames);
PyObject *mo_py_qkv_split(PyObject *self, PyObject *const *args, Py_ssize_t n_args,
                          PyObject *kwnames);

extern PyMethodDef mo_py_settings[];
extern PyMethodDef mo_py_tuning[];

// Before a device's first operation: has it use the kernels that `python -m mlxops tune` found to
// be the fastest. false with an exception.
bool mo_py_apply_tuning(const mo_device *device);

#endif
