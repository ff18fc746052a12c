from collections.abc import Sequence
from typing import Any, Protocol, SupportsIndex, final, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

class _Named(Protocol):
    @property
    def name(self) -> str: ...

class _SupportsDLPack(Protocol):
    def __dlpack__(self) -> Any: ...
    def __dlpack_device__(self) -> tuple[Any, Any]: ...

class _SupportsArrayInterface(Protocol):
    @property
    def __array_interface__(self) -> dict[str, Any]: ...

_Float32 = NDArray[np.float32]
_Operand = ArrayLike | _SupportsDLPack | _SupportsArrayInterface
_Device = str | _Named | None

__version__: str

class DeviceError(RuntimeError): ...

@final
class Buffer:
    def __new__(cls, memory: Any, /) -> Buffer: ...

@final
class Q4_0Matrix:
    @classmethod
    def quantize(cls, array: _Operand, /) -> Q4_0Matrix: ...
    @classmethod
    def from_blocks(cls, buffer: Any, shape: Sequence[SupportsIndex]) -> Q4_0Matrix: ...
    @classmethod
    def concat(cls, matrices: Sequence[Q4_0Matrix], /) -> Q4_0Matrix: ...
    @classmethod
    def _from_buffer(
        cls, buffer: Buffer, offset: SupportsIndex, shape: Sequence[SupportsIndex]
    ) -> Q4_0Matrix: ...
    def dequantize(self) -> _Float32: ...
    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def blocks(self) -> NDArray[np.uint8]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, rows: slice, /) -> Q4_0Matrix: ...
    def __copy__(self) -> Q4_0Matrix: ...
    def __deepcopy__(self, memo: Any, /) -> Q4_0Matrix: ...

def mul_mv_q4_0(
    weight: Q4_0Matrix,
    x: _Operand,
    *,
    out: _Float32 | Sequence[_Float32] | None = None,
    device: _Device = None,
) -> _Float32: ...
def fused_dual_proj_q4_0(
    weight_a: Q4_0Matrix,
    weight_b: Q4_0Matrix,
    x: _Operand,
    *,
    out: Sequence[_Float32] | None = None,
    device: _Device = None,
) -> tuple[_Float32, _Float32]: ...
@overload
def qkv_split(
    qkv: _Operand,
    q_sp: SupportsIndex,
    k_sp: SupportsIndex,
    v_sp: SupportsIndex,
    *,
    out: Sequence[_Float32] | None = None,
    device: _Device = None,
) -> tuple[_Float32, _Float32, _Float32]: ...
@overload
def qkv_split(
    qkv: _Operand,
    *,
    n_k_heads: SupportsIndex,
    d_k: SupportsIndex,
    n_v_heads: SupportsIndex,
    d_v: SupportsIndex,
    out: Sequence[_Float32] | None = None,
    device: _Device = None,
) -> tuple[_Float32, _Float32, _Float32]: ...
def devices() -> list[tuple[str, str]]: ...
def default_device() -> str: ...
def set_default_device(name: str | _Named, /) -> None: ...
def get_num_threads() -> int: ...
def set_num_threads(n: SupportsIndex, /) -> None: ...
def gguf_check(file: Any, types: Any, /) -> None: ...
