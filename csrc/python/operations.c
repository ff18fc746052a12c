// The operations as Python functions, each call an encoder of its own, and as methods of Encoder,
// which are recorded only. Both without the GIL.

#include "encoder.h"
#include "python/core.h"

// What a call passes to the C core.
typedef struct call {
    mo_py_encoder *encoder; // that records it; NULL: it runs at once
    mo_device *device;
    mo_py_array input;
    int n_results;
    mo_py_array results[3];
    int64_t last[3];           // the last dimension of each result
    PyObject *const *matrices; // the objects of the weights
    int n_weights;
    const mo_q4_0_matrix *weights[2];
} call;

typedef mo_status (*encode_function)(mo_encoder *encoder, call *c);

static mo_status run_at_once(encode_function encode, call *c) {
    mo_encoder *encoder;
    mo_status status = mo_encoder_begin(c->device, &encoder);
    if (status != MO_OK)
        return status;
    status = encode(encoder, c);
    if (status == MO_OK)
        status = mo_encoder_commit(encoder);
    if (status == MO_OK)
        status = mo_encoder_wait(encoder);
    mo_encoder_free(encoder);
    return status;
}

// The results as one array or a tuple of them. NULL with an exception.
static PyObject *collect(call *c) {
    if (c->n_results == 1)
        return mo_py_result(&c->results[0], &c->input, c->last[0]);
    PyObject *results = PyTuple_New(c->n_results);
    for (int i = 0; i < c->n_results && results; i++) {
        PyObject *result = mo_py_result(&c->results[i], &c->input, c->last[i]);
        if (result)
            PyTuple_SET_ITEM(results, i, result);
        else
            Py_CLEAR(results);
    }
    return results;
}

static PyObject *run(encode_function encode, call *c) {
    mo_status status;
    Py_BEGIN_ALLOW_THREADS
    status = run_at_once(encode, c);
    Py_END_ALLOW_THREADS
    return status == MO_OK ? collect(c) : mo_py_raise(status);
}

static PyObject *record(encode_function encode, call *c, const char *input_name) {
    if (!mo_py_encoder_prepare(c->encoder, &c->input, input_name, c->n_results, c->results))
        return NULL;
    for (int i = 0; i < c->n_weights; i++)
        if (!mo_py_encoder_keep(c->encoder, c->matrices[i]))
            return NULL;
    mo_encoder *encoder = mo_py_encoder_handle(c->encoder);
    const size_t mark = mo_encoder_mark(encoder);
    mo_status status;
    Py_BEGIN_ALLOW_THREADS
    status = encode(encoder, c);
    Py_END_ALLOW_THREADS
    if (status != MO_OK)
        return mo_py_raise(status);
    PyObject *results = collect(c);
    if (results)
        mo_py_encoder_add_results(c->encoder, c->n_results, c->results, results);
    else
        mo_encoder_rewind(encoder, mark);
    return results;
}

// Where to run: the encoder's device, or the one that was given.
static bool find_device(call *c, PyObject *device) {
    if (!c->encoder)
        return mo_py_device(device, &c->device) && mo_py_apply_tuning(c->device);
    if (device)
        PyErr_SetString(PyExc_TypeError, "an encoder's operations run on its own device");
    return !device && mo_py_encoder_is_open(c->encoder);
}

// Everything that the operations have in common, once what is their own has been put into the call.
static PyObject *perform(encode_function encode, call *c, PyObject *input, const char *input_name,
                         PyObject *out, PyObject *device) {
    PyObject *result = NULL;
    if (find_device(c, device) && mo_py_take_outputs(out, c->n_results, c->results) &&
        mo_py_input(input, input_name, out, c->encoder, &c->input) &&
        mo_py_describe_outputs(c->n_results, c->encoder, c->results))
        result = c->encoder ? record(encode, c, input_name) : run(encode, c);
    mo_py_clear(&c->input);
    for (int i = 0; i < c->n_results; i++)
        mo_py_clear(&c->results[i]);
    return result;
}

// ---- Projections -------------------------------------------------------------------------------

static mo_status encode_mul_mv(mo_encoder *encoder, call *c) {
    return mo_mul_mv_q4_0(encoder, c->weights[0], &c->input.array, &c->results[0].array);
}

PyDoc_STRVAR(
    mul_mv_q4_0_doc,
    "mul_mv_q4_0($module, weight, x, *, out=None, device=None)\n--\n\n"
    "Multiply x by a Q4_0 weight matrix: x @ weight.T.\n\n"
    "Parameters\n"
    "----------\n"
    "weight : Q4_0Matrix\n"
    "    Shape (N, K).\n"
    "x : array_like of float32\n"
    "    Shape (..., K): one or more rows of activations. float16 and non-contiguous arrays\n"
    "    are converted; other dtypes are refused.\n"
    "out : ndarray of float32, optional\n"
    "    Shape (..., N), C-contiguous: where to put the result.\n"
    "device : str or Device, optional\n"
    "    Where to run; by default on default_device().\n\n"
    "Returns\n"
    "-------\n"
    "ndarray of float32\n"
    "    Shape (..., N); `out` if it was given. Every element is summed in the same order,\n"
    "    whatever the number of rows, the threads and the device: the same bits.\n\n"
    "Raises\n"
    "------\n"
    "ValueError\n"
    "    If the shapes do not fit, m or a dimension is 0, or out cannot take the result.\n"
    "TypeError\n"
    "    If weight is no Q4_0Matrix, or a dtype is wrong.\n"
    "DeviceError\n"
    "    If there is no such device, or it failed.\n"
    "MemoryError\n");

PyObject *mo_py_mul_mv_q4_0(PyObject *self, PyObject *const *args, Py_ssize_t n_args,
                            PyObject *kwnames) {
    static const mo_py_signature signature = {
        "mul_mv_q4_0", 2, 2, {"weight", "x", "out", "device"}};
    PyObject *values[MO_PY_MAX_PARAMETERS];
    call c = {.encoder = mo_py_encoder_of(self), .n_results = 1, .n_weights = 1};
    if (!mo_py_parse(&signature, args, n_args, kwnames, values))
        return NULL;
    c.weights[0] = mo_py_matrix_of(values[0], "weight");
    if (!c.weights[0])
        return NULL;
    c.matrices = values;
    c.last[0] = c.weights[0]->N;
    return perform(encode_mul_mv, &c, values[1], "x", values[2], values[3]);
}

static mo_status encode_fused_dual_proj(mo_encoder *encoder, call *c) {
    return mo_fused_dual_proj_q4_0(encoder, c->weights[0], c->weights[1], &c->input.array,
                                   &c->results[0].array, &c->results[1].array);
}

PyDoc_STRVAR(
    fused_dual_proj_q4_0_doc,
    "fused_dual_proj_q4_0($module, weight_a, weight_b, x, *, out=None, device=None)\n--\n\n"
    "Multiply x by two Q4_0 weight matrices of one shape, in one dispatch.\n\n"
    "For Q + gate, K + V, or an MLP's gate + up. The results are the bits of two calls of\n"
    "mul_mv_q4_0.\n\n"
    "Parameters\n"
    "----------\n"
    "weight_a, weight_b : Q4_0Matrix\n"
    "    Shape (N, K), both.\n"
    "x : array_like of float32\n"
    "    Shape (..., K): one or more rows of activations. float16 and non-contiguous arrays\n"
    "    are converted; other dtypes are refused.\n"
    "out : pair of ndarray of float32, optional\n"
    "    Shape (..., N), C-contiguous, both: where to put the results.\n"
    "device : str or Device, optional\n"
    "    Where to run; by default on default_device().\n\n"
    "Returns\n"
    "-------\n"
    "(a, b) : ndarrays of float32\n"
    "    x @ weight_a.T and x @ weight_b.T, shape (..., N); those of `out` if it was given.\n\n"
    "Raises\n"
    "------\n"
    "ValueError\n"
    "    If the shapes do not fit, m or a dimension is 0, or out cannot take the results.\n"
    "TypeError\n"
    "    If a weight is no Q4_0Matrix, or a dtype is wrong.\n"
    "DeviceError\n"
    "    If there is no such device, or it failed.\n"
    "MemoryError\n");

PyObject *mo_py_fused_dual_proj_q4_0(PyObject *self, PyObject *const *args, Py_ssize_t n_args,
                                     PyObject *kwnames) {
    static const mo_py_signature signature = {
        "fused_dual_proj_q4_0", 3, 3, {"weight_a", "weight_b", "x", "out", "device"}};
    PyObject *values[MO_PY_MAX_PARAMETERS];
    call c = {.encoder = mo_py_encoder_of(self), .n_results = 2, .n_weights = 2};
    if (!mo_py_parse(&signature, args, n_args, kwnames, values))
        return NULL;
    for (int i = 0; i < 2; i++) {
        c.weights[i] = mo_py_matrix_of(values[i], signature.names[i]);
        if (!c.weights[i])
            return NULL;
        c.last[i] = c.weights[i]->N;
    }
    c.matrices = values;
    return perform(encode_fused_dual_proj, &c, values[2], "x", values[3], values[4]);
}

// ---- QKV split ---------------------------------------------------------------------------------

static mo_status encode_qkv_split(mo_encoder *encoder, call *c) {
    return mo_qkv_split_f32(encoder, &c->input.array, c->last[0], c->last[1], c->last[2],
                            &c->results[0].array, &c->results[1].array, &c->results[2].array);
}

static int count_given(PyObject *const *values, int n) {
    int given = 0;
    for (int i = 0; i < n; i++)
        given += values[i] && values[i] != Py_None;
    return given;
}

// spans = heads * size of a head. false with an exception.
static bool multiply_heads(const mo_py_signature *signature, PyObject *const *values,
                           int64_t *spans) {
    int64_t numbers[4];
    for (int i = 0; i < 4; i++) {
        if (!mo_py_int64(values[4 + i], signature->names[4 + i], &numbers[i]))
            return false;
        if (numbers[i] < 1) {
            PyErr_Format(PyExc_ValueError, "%s is %lld; it must be positive",
                         signature->names[4 + i], (long long)numbers[i]);
            return false;
        }
    }
    if (__builtin_mul_overflow(numbers[0], numbers[1], &spans[0]) ||
        __builtin_mul_overflow(numbers[2], numbers[3], &spans[2])) {
        PyErr_SetString(PyExc_ValueError,
                        "n_k_heads * d_k or n_v_heads * d_v overflows; q_sp + k_sp "
                        "+ v_sp is at most 2^31 - 1");
        return false;
    }
    spans[1] = spans[0];
    return true;
}

// The spans from values[1..3], or from the heads in values[4..7]. false with an exception.
static bool take_spans(const mo_py_signature *signature, PyObject *const *values, int64_t *spans) {
    const int n_spans = count_given(values + 1, 3), n_heads = count_given(values + 4, 4);
    if (n_spans == 0 && n_heads == 4)
        return multiply_heads(signature, values, spans);
    if (n_spans == 3 && n_heads == 0)
        return mo_py_int64(values[1], "q_sp", &spans[0]) &&
               mo_py_int64(values[2], "k_sp", &spans[1]) &&
               mo_py_int64(values[3], "v_sp", &spans[2]);
    PyErr_SetString(PyExc_TypeError,
                    "qkv_split() needs either q_sp, k_sp and v_sp, or n_k_heads, d_k, "
                    "n_v_heads and d_v: all of one kind and none of the other");
    return false;
}

PyDoc_STRVAR(
    qkv_split_doc,
    "qkv_split($module, qkv, q_sp=None, k_sp=None, v_sp=None, *, n_k_heads=None, d_k=None, "
    "n_v_heads=None, d_v=None, out=None, device=None)\n--\n\n"
    "Split a fused [seq, q | k | v] tensor into three contiguous arrays, in one dispatch.\n\n"
    "Parameters\n"
    "----------\n"
    "qkv : array_like of float32\n"
    "    Shape (..., q_sp + k_sp + v_sp).\n"
    "q_sp, k_sp, v_sp : int\n"
    "    The channels of q, k and v. Any positive numbers.\n"
    "n_k_heads, d_k, n_v_heads, d_v : int\n"
    "    Instead of the spans, as a Gated DeltaNet layer has them: q_sp = k_sp = n_k_heads *\n"
    "    d_k and v_sp = n_v_heads * d_v.\n"
    "out : three ndarrays of float32, optional\n"
    "    C-contiguous: where to put q, k and v.\n"
    "device : str or Device, optional\n"
    "    Where to run; by default on default_device().\n\n"
    "Returns\n"
    "-------\n"
    "(q, k, v) : ndarrays of float32\n"
    "    Shapes (..., q_sp), (..., k_sp) and (..., v_sp); those of `out` if it was given. The\n"
    "    elements keep all their bits, also those of a NaN.\n\n"
    "Raises\n"
    "------\n"
    "ValueError\n"
    "    If a span or seq is 0 or negative, the last dimension of qkv is not q_sp + k_sp +\n"
    "    v_sp, or out cannot take the results.\n"
    "TypeError\n"
    "    If both spans and heads are given, or only some of either; if a dtype is wrong.\n"
    "DeviceError\n"
    "    If there is no such device, or it failed.\n"
    "MemoryError\n");

PyObject *mo_py_qkv_split(PyObject *self, PyObject *const *args, Py_ssize_t n_args,
                          PyObject *kwnames) {
    static const mo_py_signature signature = {
        "qkv_split",
        1,
        4,
        {"qkv", "q_sp", "k_sp", "v_sp", "n_k_heads", "d_k", "n_v_heads", "d_v", "out", "device"}};
    PyObject *values[MO_PY_MAX_PARAMETERS];
    call c = {.encoder = mo_py_encoder_of(self), .n_results = 3};
    if (!mo_py_parse(&signature, args, n_args, kwnames, values) ||
        !take_spans(&signature, values, c.last))
        return NULL;
    return perform(encode_qkv_split, &c, values[0], "qkv", values[8], values[9]);
}

PyMethodDef mo_py_operations[] = {
    {"mul_mv_q4_0", MO_PY_FUNCTION(mo_py_mul_mv_q4_0), MO_PY_VECTORCALL, mul_mv_q4_0_doc},
    {"fused_dual_proj_q4_0", MO_PY_FUNCTION(mo_py_fused_dual_proj_q4_0), MO_PY_VECTORCALL,
     fused_dual_proj_q4_0_doc},
    {"qkv_split", MO_PY_FUNCTION(mo_py_qkv_split), MO_PY_VECTORCALL, qkv_split_doc},
    {NULL, NULL, 0, NULL},
};
