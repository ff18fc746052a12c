"""Arrays that are not NumPy's: they offer __array_interface__ or DLPack, and nothing else."""

import ctypes
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

CPU = (1, 0)
METAL = (8, 0)


class ArrayInterface:
    """An object that offers its memory through __array_interface__ alone."""

    def __init__(self, source: npt.NDArray[Any]) -> None:
        self.array = source

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self.array.__array_interface__


class ArrayInterfaceBeforeDLPack(ArrayInterface):
    """One that must not be asked for DLPack, since __array_interface__ comes first."""

    def __dlpack__(self, **arguments: Any) -> Any:
        raise AssertionError("DLPack is asked last")

    def __dlpack_device__(self) -> tuple[int, int]:
        raise AssertionError("DLPack is asked last")


class DLPackArray:
    """A NumPy array seen through __dlpack__ and __dlpack_device__ alone."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self.array = array

    def __dlpack__(self, **arguments: Any) -> Any:
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU


class OldDLPackArray(DLPackArray):
    """The same from a library that does not know the arguments of newer versions."""

    def __dlpack__(self, stream: None = None) -> Any:  # type: ignore[override]
        return self.array.__dlpack__(stream=stream)


class DLPackArrayOnGpu(DLPackArray):
    """An array in memory that the CPU cannot read; asking for it all the same is a mistake."""

    def __dlpack__(self, **arguments: Any) -> NoReturn:
        raise AssertionError("the memory of a GPU was asked for")

    def __dlpack_device__(self) -> tuple[int, int]:
        return METAL


class DLPackArrayWithGradient(DLPackArray):
    """An array that is not handed out, as a torch tensor that requires a gradient."""

    def __dlpack__(self, **arguments: Any) -> NoReturn:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")


class _DLManagedTensor(ctypes.Structure):
    """As dlpack.h has it."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("type_code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
        ("manager_context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class DLPackBfloat16:
    """Zeros as bfloat16, a type that NumPy does not have."""

    BFLOAT16 = 4
    dtype = "bfloat16"

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._data = np.zeros(shape, np.uint16)
        self._shape = (ctypes.c_int64 * len(shape))(*shape)
        self._tensor = _DLManagedTensor(
            data=self._data.ctypes.data,
            device_type=CPU[0],
            ndim=len(shape),
            type_code=self.BFLOAT16,
            bits=16,
            lanes=1,
            shape=self._shape,
        )

    def __dlpack__(self, **arguments: Any) -> Any:
        new_capsule = ctypes.pythonapi.PyCapsule_New
        new_capsule.restype = ctypes.py_object
        new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new_capsule(ctypes.addressof(self._tensor), b"dltensor", None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU
