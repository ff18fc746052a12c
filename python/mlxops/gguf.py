"""Weights from GGUF files, read lazily from the memory map, and to them. Needs the package gguf.

with mo.gguf.load("model.gguf") as file:
    wq = file["blk.0.attn_q.weight"]             # Q4_0: a Q4_0Matrix over the mapping
    wk = file["blk.0.attn_k.weight"].quantize()  # any other type: a GGUFTensor

mo.gguf.save("quantised.gguf", {"blk.0.attn_k.weight": wk})
"""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
from collections.abc import Iterator, Mapping
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from mlxops import _core

if TYPE_CHECKING:
    from gguf import GGUFReader, GGUFWriter, ReaderField, ReaderTensor

    Path = str | os.PathLike[str]

__all__ = ["GGUFFile", "GGUFTensor", "load", "save"]


# What ggml keeps of a tensor's name, with a terminating zero.
MAX_NAME_BYTES = 64


class GGUFTensor:
    """A tensor of a GGUF file that is not a Q4_0 matrix. Its data stays in the file until used."""

    __slots__ = ("_data", "_type", "name", "shape")

    name: str
    """The tensor's name in the file."""
    shape: tuple[int, ...]
    """As NumPy has it: for a matrix (N, K)."""

    def __init__(self, tensor: ReaderTensor) -> None:
        self.name = tensor.name
        self.shape = _shape(tensor)
        self._type = tensor.tensor_type
        self._data = tensor.data

    @property
    def type(self) -> str:
        """The type's name in ggml, such as "F32" or "Q4_1"."""
        return self._type.name

    def dequantize(self) -> NDArray[np.float32]:
        """Return the values as a new float32 array of this shape.

        Raises ValueError for a type that the package gguf cannot dequantise.
        """
        from gguf import dequantize

        if self._data.dtype != np.uint8:  # not quantised: the file has the elements themselves
            return np.array(self._data, np.float32)
        try:
            values: NDArray[np.float32] = dequantize(np.asarray(self._data), self._type)
            return values.reshape(self.shape)
        except NotImplementedError as error:
            raise ValueError(
                f"tensor '{self.name}' has type {self.type}, which the package gguf does not "
                f"dequantise"
            ) from error

    def quantize(self) -> _core.Q4_0Matrix:
        """Return the tensor as a Q4_0 matrix.

        Raises ValueError if it has not two dimensions, K is no multiple of 32, or a value cannot
        be quantised.
        """
        if len(self.shape) != 2:
            raise ValueError(
                f"tensor '{self.name}' has shape {self.shape}; only a matrix can be quantised"
            )
        try:
            return _core.Q4_0Matrix.quantize(self.dequantize())
        except ValueError as error:
            raise ValueError(f"tensor '{self.name}': {error}") from error

    def __repr__(self) -> str:
        return f"<GGUFTensor '{self.name}' of shape {self.shape}, {self.type}>"


class _Metadata(Mapping[str, Any]):
    """The file's metadata, each value decoded when it is asked for."""

    def __init__(self, fields: Mapping[str, ReaderField]) -> None:
        self._fields = fields

    def __getitem__(self, key: str) -> Any:
        return self._fields[key].contents()

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


class GGUFFile(Mapping[str, "_core.Q4_0Matrix | GGUFTensor"]):
    """An open GGUF file: a mapping from names to tensors, and a context manager.

    Two-dimensional Q4_0 tensors are `Q4_0Matrix` without a copy, all others `GGUFTensor`. Both stay
    valid after the file has been closed: the mapping lasts as long as anything refers to it.
    """

    def __init__(self, path: Path, reader: GGUFReader) -> None:
        self._path = os.fsdecode(path)
        self._open(reader)

    def _open(self, reader: GGUFReader) -> None:
        self._buffer: _core.Buffer | None = _core.Buffer(reader.data)
        self._tensors = {tensor.name: tensor for tensor in reader.tensors}
        self._metadata = _Metadata(reader.fields)

    def _check_open(self) -> _core.Buffer:
        if self._buffer is None:
            raise ValueError(f"{self._path} has been closed")
        return self._buffer

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata of the file: strings, numbers, booleans, and lists of them."""
        self._check_open()
        return self._metadata

    def __getitem__(self, name: str) -> _core.Q4_0Matrix | GGUFTensor:
        buffer = self._check_open()
        tensor = self._tensors[name]
        if tensor.tensor_type.name == "Q4_0" and len(tensor.shape) == 2:
            n, k = _shape(tensor)
            try:
                return _core.Q4_0Matrix._from_buffer(buffer, tensor.data_offset, (n, k))
            except ValueError as error:
                raise ValueError(f"{self._path}: tensor '{name}': {error}") from error
        return GGUFTensor(tensor)

    def __iter__(self) -> Iterator[str]:
        self._check_open()
        return iter(self._tensors)

    def __len__(self) -> int:
        self._check_open()
        return len(self._tensors)

    def close(self) -> None:
        """Let go of the mapping. Tensors that are still referred to keep it."""
        self._buffer = None
        self._tensors = {}
        self._metadata = _Metadata({})

    def __enter__(self) -> GGUFFile:
        self._check_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._buffer is None else f"{len(self._tensors)} tensors"
        return f"<GGUFFile '{self._path}', {state}>"


def load(path: Path) -> GGUFFile:
    """Open a GGUF file.

    Nothing but its header is read. Do not change the file while it is open, since a GPU may have a
    copy of what was there. Nor truncate it: as with every memory map, the process would be killed
    when it touches what is gone.

    Raises OSError if the file cannot be opened; ValueError, naming the file and where possible the
    tensor, if it is not GGUF, is truncated, or has a tensor that reaches past its end; ImportError
    if the package gguf is not installed.
    """
    gguf = _package()
    path = os.fspath(path)  # a number would be a file descriptor, of which open() takes possession
    with open(path, "rb", opener=_open_at_once) as file:
        try:
            _check(file, gguf.GGML_QUANT_SIZES)
            reader = gguf.GGUFReader(file)
            return GGUFFile(path, reader)
        except (ValueError, KeyError, IndexError) as error:
            reason = error.args[0] if isinstance(error, KeyError) else error
            raise ValueError(f"{os.fsdecode(path)}: {reason}") from error


def save(
    path: Path,
    tensors: Mapping[str, _core.Q4_0Matrix | GGUFTensor | NDArray[Any]],
    metadata: Mapping[str, str | bool | int | float] | None = None,
) -> None:
    """Write a GGUF file (version 3), in place of one that is there.

    Matrices become Q4_0 tensors with the same blocks. Arrays become tensors of their own type:
    float32, float16, or float64 of NumPy, of one dimension or more. A `GGUFTensor` keeps its type
    and its bytes. `metadata` may hold anything simple, as "general.architecture" (without which it
    is "mlxops"). The file appears under its name once it is complete.

    Raises ValueError if there is no tensor, or one has a name of more than 63 bytes; TypeError for
    tensors of other types and metadata of other kinds; OSError if the file cannot be written;
    ImportError if the package gguf is not installed.
    """
    gguf = _package()
    path = os.fsdecode(os.fspath(path))
    contents = dict(metadata or {})
    for key, value in contents.items():
        if not isinstance(value, (str, bool, int, float)):
            kind = type(value).__name__
            raise TypeError(f"metadata '{key}' is {kind}; str, bool, int and float can be kept")
    if not tensors:
        raise ValueError("there is no tensor to save")
    part = f"{path}.{os.getpid()}.part"
    writer = gguf.GGUFWriter(part, str(contents.pop("general.architecture", "mlxops")))
    try:
        for key, value in contents.items():
            _add_metadata(writer, key, value)
        for name, tensor in tensors.items():
            _add_tensor(writer, name, tensor)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        os.replace(part, path)
    finally:
        writer.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)


def _add_metadata(writer: GGUFWriter, key: str, value: str | bool | int | float) -> None:
    if isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_int64(key, value)
    else:
        writer.add_float64(key, value)


def _add_tensor(
    writer: GGUFWriter, name: str, tensor: _core.Q4_0Matrix | GGUFTensor | NDArray[Any]
) -> None:
    from gguf import GGMLQuantizationType

    if len(name.encode()) >= MAX_NAME_BYTES:
        raise ValueError(f"the name '{name}' has more than {MAX_NAME_BYTES - 1} bytes")
    if isinstance(tensor, _core.Q4_0Matrix):
        blocks = tensor.blocks.reshape(len(tensor), -1)
        writer.add_tensor(name, blocks, raw_dtype=GGMLQuantizationType.Q4_0)
    elif isinstance(tensor, GGUFTensor):
        writer.add_tensor(name, np.asarray(tensor._data), raw_dtype=tensor._type)
    elif isinstance(tensor, np.ndarray) and tensor.dtype.char in "efd":
        writer.add_tensor(name, np.ascontiguousarray(tensor, tensor.dtype.newbyteorder("=")))
    else:
        kind = tensor.dtype if isinstance(tensor, np.ndarray) else type(tensor).__name__
        raise TypeError(
            f"tensor '{name}' is {kind}; a Q4_0Matrix, a GGUFTensor or an array of floats is saved"
        )


def _package() -> ModuleType:
    """The package gguf."""
    try:
        import gguf
    except ImportError as error:
        raise ImportError(
            "mlxops.gguf needs the package gguf: pip install gguf, or pip install '.[gguf]' in a "
            "checkout of mlxops"
        ) from error
    return gguf


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting, as for the other end of a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def _check(file: BinaryIO, block_sizes: Mapping[Any, tuple[int, int]]) -> None:
    """Raise ValueError unless the file is one whose structure the reader can trust."""
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode) or status.st_size == 0:
        raise ValueError("not a GGUF file, but empty or no regular file")
    types = np.zeros((max(block_sizes) + 1, 2), np.uint32)
    for number, size in block_sizes.items():
        types[number] = size
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapping:
        _core.gguf_check(mapping, types)


def _shape(tensor: ReaderTensor) -> tuple[int, ...]:
    return tuple(int(n) for n in reversed(tensor.shape))
