"""Memory: arrays that no device copies, what is copied, and what is kept of the freed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mlxops import _core

if TYPE_CHECKING:
    from mlxops._types import Float32, Operand


class Copies(NamedTuple):
    """Bytes that were copied for operations since the process began."""

    bytes_in: int
    """Into memory that a device can use: of inputs that lie elsewhere, or have another layout."""
    bytes_out: int
    """From there into arrays given as `out=` that lie elsewhere."""


def copies() -> Copies:
    """Return how many bytes were copied for operations: the difference of two calls is of interest.

    Inputs, and arrays given as `out=`, that lie in memory of the library's own (results, `empty`,
    `asarray`) are not copied, nor is anything on the CPU that is C-contiguous float32. A GPU with
    memory of its own (CUDA) moves all inputs there and all results back, which counts.
    """
    return Copies(*_core.copied())


def asarray(array: Operand) -> Float32:
    """Return an array in memory that every device uses as it is, with these elements.

    That is the array itself where it lies there already, a copy otherwise. Takes what operations
    take; see `empty`. TypeError for dtypes other than float32 and float16.
    """
    from mlxops import _arrays  # which only conversions need

    return _arrays.shared(array)


class CacheInfo(NamedTuple):
    """How much memory is kept."""

    nbytes: int
    """Bytes of freed buffers that wait to be used again."""
    limit: int
    """The most bytes that are kept."""


def cache_info() -> CacheInfo:
    """Return how much memory is kept for the next results and matrices; `clear_cache` frees it."""
    return CacheInfo(*_core.cache_info())
