"""What the extension asks Python about arrays: conversions that copy, and every complaint."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlxops import _core

Float32 = NDArray[np.float32]

# DLPack's device types: the CPU, and memory of a GPU that the CPU reads as its own.
CPU_READABLE = {1, 3, 11, 13}


def as_float32(name: str, value: object, outs: object) -> Float32:
    """Return an operand as an aligned C-contiguous float32 array of NumPy's own class.

    float16 and byte-swapped elements are converted; of other types only Python's own numbers are.
    `outs` is what was given as `out=`: ValueError if one of its arrays shares memory with the
    operand, which a copy would hide from the check of the addresses.
    """
    array = _as_floats(name, value, 4, "float32")
    for i, out in enumerate(outs if isinstance(outs, (tuple, list)) else [outs]):
        if isinstance(out, np.ndarray) and np.shares_memory(array, out):
            label = f"out[{i}]" if isinstance(outs, (tuple, list)) else "out"
            raise ValueError(f"{label} overlaps {name} in memory")
    ready = np.require(array, np.float32, ["C", "A"])
    if isinstance(value, (list, tuple)) or not np.may_share_memory(ready, array):
        _core.count_copy(ready.nbytes)
    return ready


def shared(value: object) -> Float32:
    """Return a value as a float32 array in memory that every device uses: itself if it is one."""
    array = _as_floats("array", value, 4, "float32")
    ready = array.dtype == np.float32 and array.dtype.isnative and array.flags.carray
    if ready and _core.is_shared(array):
        return value if type(value) is np.ndarray else array
    result = _core.empty(array.shape)
    np.copyto(result, array)
    _core.count_copy(result.nbytes)
    return result


def as_matrix(value: object) -> Float32:
    """Return what is to be quantised as a C-contiguous float32 array of two dimensions."""
    array = _as_floats("array", value, 8, "float32, float16 or float64")
    if array.ndim != 2:
        raise ValueError(f"array has shape {array.shape}; a matrix has two dimensions, (N, K)")
    with np.errstate(over="ignore"):  # infinities are refused by row
        return np.require(array, np.float32, ["C", "A"])


def check_out(name: str, out: object) -> None:
    """Raise TypeError or ValueError unless a result can be written into `out` as it is."""
    if not isinstance(out, np.ndarray):
        raise TypeError(f"{name} is {_type_name(out)}; it must be a numpy.ndarray")
    array = _without_subclass(name, out)
    if array.dtype != np.float32 or not array.dtype.isnative:
        raise TypeError(
            f"{name} has dtype {array.dtype}; it must be float32, as numpy.empty(shape, "
            f"numpy.float32) makes it"
        )
    if not array.flags.writeable:
        raise ValueError(f"{name} is read-only; results are written into it")
    if not array.flags.c_contiguous or not array.flags.aligned:
        raise ValueError(
            f"{name} is not C-contiguous and aligned, as numpy.empty(shape, numpy.float32) makes it"
        )


def _as_floats(name: str, value: object, itemsize: int, wanted: str) -> NDArray[Any]:
    """View a value as an array of floats of at most `itemsize` bytes, without a copy if possible.

    Numbers of Python's own have no dtype to be wrong: nested lists of them become float32.
    """
    if isinstance(value, (list, tuple)):
        with np.errstate(over="ignore"):
            return np.asarray(_plain(name, value, itemsize, wanted), np.float32)
    array = _as_ndarray(name, value)
    if array.dtype.kind != "f" or array.dtype.itemsize > itemsize:
        raise TypeError(
            f"{name} has dtype {array.dtype}; it must be {wanted}: convert it with "
            f"{name}.astype(numpy.float32)"
        )
    return array


def _plain(name: str, value: object, itemsize: int, wanted: str) -> Any:
    """Lists down to numbers and arrays, each of which has been found good."""
    if isinstance(value, (list, tuple)):
        return [_plain(name, item, itemsize, wanted) for item in value]
    if type(value) in (int, float):
        return value
    return _as_floats(f"an element of {name}", value, itemsize, wanted)


def _as_ndarray(name: str, value: object) -> NDArray[Any]:
    """View a value as an array of NumPy's own class, without a copy where it is one already."""
    if isinstance(value, np.ndarray):
        return _without_subclass(name, value)
    foreign: Any = value
    try:
        return np.asarray(memoryview(foreign))
    except (TypeError, ValueError, BufferError):
        pass  # no buffer, or one of a format that NumPy does not know
    if hasattr(foreign, "__array_interface__"):
        return _without_subclass(name, np.asarray(foreign))
    if hasattr(foreign, "__dlpack__"):
        return _from_dlpack(name, foreign)
    raise TypeError(
        f"{name} is {_type_name(value)}; it must be an array of float32, or have the "
        f"buffer protocol, __array_interface__ or __dlpack__"
    )


def _from_dlpack(name: str, value: Any) -> NDArray[Any]:
    kind = _type_name(value)
    try:
        device_type = int(value.__dlpack_device__()[0])
        if device_type in CPU_READABLE:
            return np.asarray(np.from_dlpack(value))
    except Exception as error:  # of another library: it can be anything
        raise TypeError(
            f"{name} is {kind} of dtype {getattr(value, 'dtype', 'unknown')}, which cannot be read "
            f"as it is ({error}); for a tensor that requires grad call detach(), for another dtype "
            f"convert it to float32"
        ) from error
    raise TypeError(
        f"{name} is {kind} in memory that the CPU cannot read (DLPack device type {device_type}); "
        f"move it to the CPU first, as x.cpu() does"
    )


def _without_subclass(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """The array as NumPy sees it, whatever a subclass has made of its attributes."""
    # No masked array can exist before its module has been imported.
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(array, masked.MaskedArray):
        raise TypeError(
            f"{name} is a masked array, whose mask would be ignored; call "
            f"{name}.filled(value) first"
        )
    return np.ndarray.view(array, np.ndarray)


def _type_name(value: object) -> str:
    return f"a {type(value).__module__}.{type(value).__qualname__}".replace("a builtins.", "a ")
