"""Memory that begins at a page, as Metal wants it."""

from __future__ import annotations

import mmap

import numpy as np
import numpy.typing as npt

PAGE = 16384
MAP_NORESERVE = 0x4000  # of Linux; the module mmap has it from Python 3.13 on


def sparse(size: int) -> npt.NDArray[np.uint8]:
    """Zeros at a multiple of PAGE, taking memory only where they are written."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
    whole = np.frombuffer(mmap.mmap(-1, size + PAGE, flags=flags), np.uint8)
    start = -whole.ctypes.data % PAGE
    return whole[start : start + size]


def sparse_floats(*shape: int) -> npt.NDArray[np.float32]:
    """The same as an array."""
    return sparse(4 * int(np.prod(shape, dtype=np.int64))).view(np.float32).reshape(shape)


def mapped(size: int) -> memoryview:
    """The same as what a mapped file looks like."""
    return sparse(size).data
