"""The C API of the extension built for the tests, whose symbols are visible, through ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mlxops import _core

_library = ctypes.CDLL(_core.__file__)
_library.mo_status_message.restype = ctypes.c_char_p


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


class Encoder:
    """An mo_encoder of a device. It releases the buffers of its operands at the end."""

    def __init__(self, device: str) -> None:
        found, self._encoder = ctypes.c_void_p(), ctypes.c_void_p()
        _check(_library.mo_device_find(device.encode(), ctypes.byref(found)))
        _check(_library.mo_encoder_begin(found, ctypes.byref(self._encoder)))
        self._keep: list[object] = []
        self._buffers: dict[int, int] = {}

    def _buffer(self, memory: npt.NDArray[np.generic]) -> int:
        """One buffer for each memory, so that an operation sees what an earlier one wrote."""
        address = memory.ctypes.data
        if address not in self._buffers:
            buffer = ctypes.c_void_p()
            size = ctypes.c_size_t(memory.nbytes)
            borrow = _library.mo_buffer_borrow_pages
            _check(borrow(ctypes.c_void_p(address), size, ctypes.byref(buffer)))
            assert buffer.value is not None
            self._buffers[address] = buffer.value
            self._keep.append(memory)
        return self._buffers[address]

    def _array(self, memory: npt.NDArray[np.float32]) -> _Array:
        shape = (ctypes.c_int64 * memory.ndim)(*memory.shape)
        return _Array(self._buffer(memory), 0, memory.ndim, shape)

    def mul_mv_q4_0(
        self,
        blocks: npt.NDArray[np.uint8],
        x: npt.NDArray[np.float32],
        out: npt.NDArray[np.float32],
    ) -> None:
        """Record it: blocks [N, K / 32 * 18], x [m, K], out [m, N]."""
        weight = _Matrix(self._buffer(blocks), 0, blocks.shape[0], x.shape[-1])
        operands = [weight, self._array(x), self._array(out)]
        _check(_library.mo_mul_mv_q4_0(self._encoder, *map(ctypes.byref, operands)))

    def qkv_split(
        self,
        qkv: npt.NDArray[np.float32],
        spans: Sequence[int],
        outs: Sequence[npt.NDArray[np.float32]],
    ) -> None:
        """Record it: qkv [seq, sum of the spans], outs [seq, span] each."""
        sizes = map(ctypes.c_int64, spans)
        results = [ctypes.byref(self._array(out)) for out in outs]
        source = ctypes.byref(self._array(qkv))
        _check(_library.mo_qkv_split_f32(self._encoder, source, *sizes, *results))

    def commit(self) -> None:
        """mo_encoder_commit."""
        _check(_library.mo_encoder_commit(self._encoder))

    def wait(self) -> None:
        """mo_encoder_wait."""
        _check(_library.mo_encoder_wait(self._encoder))

    def free(self) -> None:
        """mo_encoder_free, and the buffers."""
        _library.mo_encoder_free(self._encoder)
        for buffer in self._buffers.values():
            _library.mo_buffer_release(ctypes.c_void_p(buffer))

    def __enter__(self) -> Encoder:
        return self

    def __exit__(self, *_: object) -> None:
        self.free()
