// The type Encoder: operations that are recorded, then run as one piece of work.
//
// Results are handed out when an operation is recorded, and written when the encoder is waited for.
// Until then they are pending: every open encoder is in a list, so that an operation which would
// read a pending result too early is refused. All of this is guarded by the GIL.

#include "encoder.h"
#include "python/core.h"

#include <math.h>
#include <stdlib.h>

PyTypeObject *mo_py_EncoderType;

// Memory that the encoder has still to write.
typedef struct pending {
    mo_buffer *buffer; // a reference
    size_t offset, size;
    PyObject *out; // what the caller gave, a reference; NULL: a new array
} pending;

struct mo_py_encoder {
    PyObject_HEAD mo_encoder *encoder; // NULL: it has ended
    mo_device *device;
    unsigned long thread;
    PyObject *kept; // what must live until it has ended: a list
    pending *pending;
    size_t n_pending, capacity;
    mo_py_encoder *next; // of the open ones
};

static mo_py_encoder *open_encoders;

// ---- Pending results ---------------------------------------------------------------------------

// The first byte of an array and the one after its last.
static void bounds_of(PyArrayObject *array, uintptr_t *start, uintptr_t *end) {
    *start = (uintptr_t)PyArray_DATA(array);
    *end = *start + (uintptr_t)PyArray_ITEMSIZE(array);
    for (int i = 0; i < PyArray_NDIM(array); i++) {
        const npy_intp extent = (PyArray_DIM(array, i) - 1) * PyArray_STRIDE(array, i);
        if (PyArray_DIM(array, i) == 0)
            *end = *start;
        else if (extent < 0)
            *start += (uintptr_t)extent;
        else
            *end += (uintptr_t)extent;
    }
}

static const pending *find_pending(const mo_py_encoder *encoder, PyArrayObject *array) {
    uintptr_t start, end;
    bounds_of(array, &start, &end);
    for (size_t i = 0; i < encoder->n_pending; i++) {
        const pending *p = &encoder->pending[i];
        const uintptr_t from = (uintptr_t)mo_buffer_contents(p->buffer) + p->offset;
        if (start < from + p->size && from < end)
            return p;
    }
    return NULL;
}

bool mo_py_check_pending(const mo_py_encoder *self, const char *name, PyArrayObject *array) {
    for (const mo_py_encoder *each = open_encoders; each; each = each->next)
        if (each != self && find_pending(each, array)) {
            PyErr_Format(PyExc_RuntimeError,
                         "%s is a result that an encoder has still to compute: end its block, or "
                         "call its wait(), first",
                         name);
            return false;
        }
    return true;
}

// Room for n more, so that nothing can fail once an operation has been recorded.
static bool reserve(mo_py_encoder *self, size_t n) {
    if (self->n_pending + n <= self->capacity)
        return true;
    const size_t capacity = 2 * self->capacity + n;
    pending *grown = PyMem_Realloc(self->pending, capacity * sizeof *grown);
    if (!grown) {
        PyErr_NoMemory();
        return false;
    }
    self->pending = grown;
    self->capacity = capacity;
    return true;
}

static void add_pending(mo_py_encoder *self, const mo_py_array *result, PyArrayObject *array) {
    size_t offset = 0;
    mo_buffer *buffer = result->array.buffer;
    if (result->object)
        offset = result->array.offset;
    else
        buffer = mo_py_find_buffer(array, &offset);
    self->pending[self->n_pending++] = (pending){.buffer = mo_buffer_retain(buffer),
                                                 .offset = offset,
                                                 .size = (size_t)PyArray_NBYTES(array),
                                                 .out = Py_XNewRef(result->object)};
}

// ---- The end -----------------------------------------------------------------------------------

static void fill_with_nan(const pending *p) {
    float *values = (float *)((char *)mo_buffer_contents(p->buffer) + p->offset);
    for (size_t i = 0; i < p->size / sizeof *values; i++)
        values[i] = NAN;
}

// Nothing is pending any more. New results that were not computed are filled with NaN; arrays of
// the caller's keep what is in them.
static void settle(mo_py_encoder *self, bool computed) {
    mo_py_encoder **link = &open_encoders;
    while (*link && *link != self)
        link = &(*link)->next;
    if (*link)
        *link = self->next;
    for (size_t i = 0; i < self->n_pending; i++) {
        if (!computed && !self->pending[i].out)
            fill_with_nan(&self->pending[i]);
        mo_buffer_release(self->pending[i].buffer);
    }
    const size_t n = self->n_pending;
    self->n_pending = 0;
    for (size_t i = 0; i < n; i++)
        Py_XDECREF(self->pending[i].out);
    Py_CLEAR(self->kept);
}

static void discard(mo_py_encoder *self) {
    mo_encoder_free(self->encoder);
    self->encoder = NULL;
    settle(self, false);
}

static mo_status run(mo_encoder *encoder) {
    mo_status status = mo_encoder_commit(encoder);
    if (status == MO_OK)
        status = mo_encoder_wait(encoder);
    mo_encoder_free(encoder);
    return status;
}

static PyObject *finish(mo_py_encoder *self) {
    mo_encoder *encoder = self->encoder;
    self->encoder = NULL; // for other threads, while this one is without the GIL
    mo_status status;
    Py_BEGIN_ALLOW_THREADS
    status = run(encoder);
    Py_END_ALLOW_THREADS
    PyObject *result = status == MO_OK ? Py_NewRef(Py_None) : mo_py_raise(status);
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    settle(self, status == MO_OK);
    PyErr_Restore(type, value, traceback);
    return result;
}

// ---- Recording ---------------------------------------------------------------------------------

mo_py_encoder *mo_py_encoder_of(PyObject *self) {
    return Py_IS_TYPE(self, mo_py_EncoderType) ? (mo_py_encoder *)self : NULL;
}

bool mo_py_encoder_is_open(const mo_py_encoder *self) {
    if (!self->encoder)
        PyErr_SetString(PyExc_RuntimeError, "the encoder has ended; begin a new one");
    else if (self->thread != PyThread_get_thread_ident())
        PyErr_SetString(PyExc_RuntimeError, "the encoder belongs to the thread that made it");
    else
        return true;
    return false;
}

mo_encoder *mo_py_encoder_handle(const mo_py_encoder *self) {
    return self->encoder;
}

// An input that is not in a buffer of the library's own is copied now, so that the caller may
// change it; one that an operation before this one writes is that operation's memory.
static bool take_input(const mo_py_encoder *self, mo_py_array *input) {
    size_t offset;
    if (mo_py_find_buffer(input->object, &offset))
        return true;
    const pending *p = find_pending(self, input->object);
    mo_buffer *buffer;
    if (p) {
        const uintptr_t start = (uintptr_t)mo_buffer_contents(p->buffer);
        offset = (uintptr_t)PyArray_DATA(input->object) - start;
        if (offset < p->offset ||
            offset + (size_t)PyArray_NBYTES(input->object) > p->offset + p->size) {
            PyErr_SetString(PyExc_RuntimeError, "the input is only partly a result that this "
                                                "encoder has still to compute");
            return false;
        }
        buffer = mo_buffer_retain(p->buffer);
    } else {
        const size_t size = (size_t)PyArray_NBYTES(input->object);
        offset = 0;
        if (size == 0) // the operation refuses it
            return true;
        const mo_status status = mo_buffer_alloc(size, &buffer);
        if (status != MO_OK) {
            mo_py_raise(status);
            return false;
        }
        memcpy(mo_buffer_contents(buffer), PyArray_DATA(input->object), size);
        mo_count_copy(size, 0);
    }
    mo_buffer_release(input->array.buffer);
    input->array.buffer = buffer;
    input->array.offset = offset;
    return true;
}

// A result must be neither where this encoder writes already, nor where the input is, although that
// may be copied.
static bool check_results(const mo_py_encoder *self, const mo_py_array *input,
                          const char *input_name, int n, const mo_py_array *results) {
    uintptr_t start, end, from, to;
    bounds_of(input->object, &start, &end);
    for (int i = 0; i < n; i++) {
        if (!results[i].object)
            continue;
        bounds_of(results[i].object, &from, &to);
        if (start < to && from < end)
            PyErr_Format(PyExc_ValueError, "out overlaps %s in memory", input_name);
        else if (find_pending(self, results[i].object))
            PyErr_SetString(PyExc_ValueError,
                            "out overlaps a result that this encoder has still to compute");
        else
            continue;
        return false;
    }
    return true;
}

bool mo_py_encoder_prepare(mo_py_encoder *self, mo_py_array *input, const char *input_name,
                           int n_results, const mo_py_array *results) {
    return check_results(self, input, input_name, n_results, results) && take_input(self, input) &&
           reserve(self, (size_t)n_results);
}

bool mo_py_encoder_keep(mo_py_encoder *self, PyObject *object) {
    return PyList_Append(self->kept, object) == 0;
}

void mo_py_encoder_add_results(mo_py_encoder *self, int n_results, const mo_py_array *results,
                               PyObject *returned) {
    for (int i = 0; i < n_results; i++) {
        PyObject *array = n_results == 1 ? returned : PyTuple_GET_ITEM(returned, i);
        add_pending(self, &results[i], (PyArrayObject *)array);
    }
}

// ---- The type ----------------------------------------------------------------------------------

static PyObject *begin(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"device", NULL};
    PyObject *name = Py_None;
    mo_device *device;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:Encoder", names, &name) ||
        !mo_py_device(name, &device) || !mo_py_apply_tuning(device))
        return NULL;
    mo_py_encoder *self = PyObject_New(mo_py_encoder, type);
    if (!self)
        return NULL;
    self->encoder = NULL;
    self->device = device;
    self->thread = PyThread_get_thread_ident();
    self->pending = NULL;
    self->n_pending = self->capacity = 0;
    self->next = NULL;
    self->kept = PyList_New(0);
    const mo_status status = self->kept ? mo_encoder_begin(device, &self->encoder) : MO_OK;
    if (status != MO_OK)
        mo_py_raise(status);
    if (!self->encoder) {
        Py_DECREF(self);
        return NULL;
    }
    self->next = open_encoders;
    open_encoders = self;
    return (PyObject *)self;
}

static void deallocate(PyObject *object) {
    mo_py_encoder *self = (mo_py_encoder *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->encoder)
        discard(self);
    Py_XDECREF(self->kept);
    PyMem_Free(self->pending);
    PyObject_Free(self);
    Py_DECREF(type);
}

PyDoc_STRVAR(wait_doc,
             "wait($self, /)\n--\n\n"
             "Run what was recorded, and return when the results can be read.\n\n"
             "The encoder has ended then. The end of a with block does this by itself.\n\n"
             "Raises\n"
             "------\n"
             "RuntimeError\n"
             "    If the encoder has ended before, or belongs to another thread.\n"
             "DeviceError, MemoryError, KeyboardInterrupt\n"
             "    As an operation does. The results are filled with NaN then.\n");

static PyObject *wait(PyObject *object, PyObject *unused) {
    (void)unused;
    mo_py_encoder *self = (mo_py_encoder *)object;
    return mo_py_encoder_is_open(self) ? finish(self) : NULL;
}

static PyObject *enter(PyObject *object, PyObject *unused) {
    (void)unused;
    return mo_py_encoder_is_open((mo_py_encoder *)object) ? Py_NewRef(object) : NULL;
}

// exit(type, value, traceback): an exception in the block discards what was recorded.
static PyObject *exit_block(PyObject *object, PyObject *const *args, Py_ssize_t n_args) {
    mo_py_encoder *self = (mo_py_encoder *)object;
    if (!self->encoder) // by wait()
        Py_RETURN_NONE;
    if (n_args == 0 || args[0] == Py_None)
        return wait(object, NULL);
    if (!mo_py_encoder_is_open(self))
        return NULL;
    discard(self);
    Py_RETURN_NONE;
}

static PyObject *device_of(PyObject *object, void *unused) {
    (void)unused;
    return PyUnicode_FromString(mo_device_name(((mo_py_encoder *)object)->device));
}

PyDoc_STRVAR(
    doc,
    "Encoder(device=None)\n--\n\n"
    "Several operations as one piece of work: recorded, then run together.\n\n"
    "    with mo.Encoder() as enc:\n"
    "        q, gate = enc.fused_dual_proj_q4_0(wq, wg, x)\n"
    "        k, v = enc.fused_dual_proj_q4_0(wk, wv, x)\n\n"
    "On a GPU that is one command buffer, one commit and one wait. The methods are the functions\n"
    "of the same names, without device=. Their results are handed out at once; what is in them\n"
    "is unspecified until the block has ended or wait() has returned. An operation may use the\n"
    "result of an earlier one of the same encoder; anything else that would read it too early is\n"
    "a RuntimeError.\n\n"
    "Inputs are copied when they are recorded, but for those in memory of the library's own\n"
    "(results, mo.empty, mo.asarray), which must not be changed before the end. An exception in\n"
    "the block discards what was recorded: new results are filled with NaN, arrays given as\n"
    "out= keep what is in them.\n\n"
    "Parameters\n"
    "----------\n"
    "device : str or Device, optional\n"
    "    Where to run; by default on default_device().\n\n"
    "Raises\n"
    "------\n"
    "RuntimeError\n"
    "    If it is used after its end or from another thread than the one that made it.\n"
    "ValueError\n"
    "    If out overlaps a result that the encoder has still to compute.\n"
    "DeviceError\n"
    "    If there is no such device.\n");

static PyMethodDef methods[] = {
    {"mul_mv_q4_0", MO_PY_FUNCTION(mo_py_mul_mv_q4_0), MO_PY_VECTORCALL,
     "mul_mv_q4_0($self, weight, x, *, out=None)\n--\n\nRecord mlxops.mul_mv_q4_0."},
    {"fused_dual_proj_q4_0", MO_PY_FUNCTION(mo_py_fused_dual_proj_q4_0), MO_PY_VECTORCALL,
     "fused_dual_proj_q4_0($self, weight_a, weight_b, x, *, out=None)\n--\n\n"
     "Record mlxops.fused_dual_proj_q4_0."},
    {"qkv_split", MO_PY_FUNCTION(mo_py_qkv_split), MO_PY_VECTORCALL,
     "qkv_split($self, qkv, q_sp=None, k_sp=None, v_sp=None, *, n_k_heads=None, d_k=None, "
     "n_v_heads=None, d_v=None, out=None)\n--\n\nRecord mlxops.qkv_split."},
    {"wait", wait, METH_NOARGS, wait_doc},
    {"__enter__", enter, METH_NOARGS, NULL},
    {"__exit__", MO_PY_FUNCTION(exit_block), METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef attributes[] = {
    {"device", device_of, NULL, "The name of the device that it runs on.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, (void *)doc}, {Py_tp_new, (void *)begin}, {Py_tp_dealloc, (void *)deallocate},
    {Py_tp_methods, methods}, {Py_tp_getset, attributes}, {0, NULL},
};

static PyType_Spec spec = {
    .name = "mlxops.Encoder",
    .basicsize = sizeof(mo_py_encoder),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};

bool mo_py_init_encoder(PyObject *module) {
    mo_py_EncoderType = (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
    return mo_py_EncoderType && PyModule_AddType(module, mo_py_EncoderType) == 0;
}
