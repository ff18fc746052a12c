"""What the functions take and return, for type checkers."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray


class Named(Protocol):
    """Something with a name, as a Device is."""

    @property
    def name(self) -> str: ...


class SupportsDLPack(Protocol):
    """A tensor of another library."""

    def __dlpack__(self) -> Any: ...
    def __dlpack_device__(self) -> tuple[Any, Any]: ...


class SupportsArrayInterface(Protocol):
    """An array of another library."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...


Float32: TypeAlias = NDArray[np.float32]

Operand: TypeAlias = ArrayLike | SupportsDLPack | SupportsArrayInterface
"""float32 or float16: an array, anything with the buffer protocol, DLPack or __array_interface__
that the CPU can read, or nested lists of numbers."""

DeviceLike: TypeAlias = str | Named | None
"""A Device, its name, or None for the default."""
