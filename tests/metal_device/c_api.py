"""The C API of the extension built for the tests, whose symbols are visible, through ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mlxops import _core

_library = ctypes.CDLL(_core.__file__)
_library.mo_status_message.restype = ctypes.c_char_p
_library.mo_buffer_contents.restype = ctypes.c_void_p


class _Array(ctypes.Structure):
    _fields_ = (
        ("buffer", ctypes.c_void_p),
        ("offset", ctypes.c_size_t),
        ("ndim", ctypes.c_int),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
    )


class _Matrix(ctypes.Structure):
    _fields_ = (
        ("buffer", ctypes.c_void_p),
        ("offset", ctypes.c_size_t),
        ("N", ctypes.c_int64),
        ("K", ctypes.c_int64),
    )


def _check(status: int) -> None:
    if status != 0:
        raise RuntimeError(_library.mo_status_message().decode())


def _borrow_pages(memory: npt.NDArray[np.generic]) -> ctypes.c_void_p:
    buffer = ctypes.c_void_p()
    address, size = ctypes.c_void_p(memory.ctypes.data), ctypes.c_size_t(memory.nbytes)
    _check(_library.mo_buffer_borrow_pages(address, size, ctypes.byref(buffer)))
    return buffer


def _array(memory: npt.NDArray[np.float32]) -> _Array:
    shape = (ctypes.c_int64 * memory.ndim)(*memory.shape)
    return _Array(_borrow_pages(memory).value, 0, memory.ndim, shape)


def run(
    operation: str,
    operands: Sequence[ctypes.Structure | int],
    outs: Sequence[npt.NDArray[np.float32]],
) -> None:
    """Run an operation on the default device in memory that begins at a page."""
    encoder, device = ctypes.c_void_p(), ctypes.c_void_p()
    _check(_library.mo_device_find(b"metal", ctypes.byref(device)))
    _check(_library.mo_encoder_begin(device, ctypes.byref(encoder)))
    results = [_array(out) for out in outs]
    arguments = [
        ctypes.c_int64(operand) if isinstance(operand, int) else ctypes.byref(operand)
        for operand in operands
    ]
    try:
        _check(getattr(_library, operation)(encoder, *arguments, *map(ctypes.byref, results)))
        _check(_library.mo_encoder_commit(encoder))
        _check(_library.mo_encoder_wait(encoder))
    finally:
        _library.mo_encoder_free(encoder)
        for array in [*results, *(o for o in operands if not isinstance(o, int))]:
            _library.mo_buffer_release(ctypes.c_void_p(array.buffer))


def mul_mv_q4_0(
    blocks: npt.NDArray[np.uint8],
    x: npt.NDArray[np.float32],
    out: npt.NDArray[np.float32],
) -> None:
    """blocks [N, K / 32 * 18], x [m, K], out [m, N]."""
    weight = _Matrix(_borrow_pages(blocks).value, 0, blocks.shape[0], x.shape[1])
    run("mo_mul_mv_q4_0", [weight, _array(x)], [out])


def qkv_split(
    qkv: npt.NDArray[np.float32], spans: Sequence[int], outs: Sequence[npt.NDArray[np.float32]]
) -> None:
    """qkv [seq, sum of the spans], outs [seq, span] each."""
    run("mo_qkv_split_f32", [_array(qkv), *spans], outs)
