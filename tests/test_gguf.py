"""mo.gguf.load: tensors of a GGUF file, read lazily from its memory map."""

import contextlib
import gc
import os
import struct
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import pytest
from gguf import GGMLQuantizationType as GGMLType

import fresh_python
import mlxops as mo
from mlxops.testing import assert_bits_equal
from q4_0_data import normal_input, random_blocks
from raising import raises

METADATA: dict[str, Any] = {
    "test.uint32": 7,
    "test.int32": -7,
    "test.uint64": 2**40,
    "test.float32": 0.5,
    "test.bool": True,
    "test.string": "größer",
    "test.integers": [1, -2, 3],
    "test.floats": [0.5, -1.5],
    "test.strings": ["a", "größer", "ccc"],
}


def write_gguf(path: Path, add: Callable[[gguf.GGUFWriter], None]) -> Path:
    """A GGUF file of architecture "test" with what ``add`` puts into it."""
    writer = gguf.GGUFWriter(path, "test")
    add(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def q4_0(rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    return random_blocks(rng, 33, 96)


@pytest.fixture
def dense(rng: np.random.Generator) -> npt.NDArray[np.float32]:
    return rng.standard_normal((8, 256), np.float32)


@pytest.fixture
def path(tmp_path: Path, q4_0: npt.NDArray[np.uint8], dense: npt.NDArray[np.float32]) -> Path:
    """A file with metadata of every kind and tensors of several types."""

    def add(writer: gguf.GGUFWriter) -> None:
        writer.add_uint32("test.uint32", METADATA["test.uint32"])
        writer.add_int32("test.int32", METADATA["test.int32"])
        writer.add_uint64("test.uint64", METADATA["test.uint64"])
        writer.add_float32("test.float32", METADATA["test.float32"])
        writer.add_bool("test.bool", METADATA["test.bool"])
        writer.add_string("test.string", METADATA["test.string"])
        for key in ("test.integers", "test.floats", "test.strings"):
            writer.add_array(key, METADATA[key])
        writer.add_tensor("norm", dense[0])
        writer.add_tensor("q4_0", q4_0, raw_dtype=GGMLType.Q4_0)
        writer.add_tensor("f32", dense)
        writer.add_tensor("f16", dense.astype(np.float16))
        for type_ in (GGMLType.BF16, GGMLType.Q4_1, GGMLType.Q5_0, GGMLType.Q5_1, GGMLType.Q8_0):
            writer.add_tensor(type_.name.lower(), gguf.quantize(dense, type_), raw_dtype=type_)
        writer.add_tensor("experts", q4_0.reshape(3, 11, 54), raw_dtype=GGMLType.Q4_0)
        writer.add_tensor("vector", q4_0[0], raw_dtype=GGMLType.Q4_0)
        writer.add_tensor("narrow", dense[:, :40].copy())
        writer.add_tensor("last", q4_0[:1], raw_dtype=GGMLType.Q4_0)

    return write_gguf(tmp_path / "model.gguf", add)


NAMES = (
    *("norm", "q4_0", "f32", "f16", "bf16", "q4_1", "q5_0", "q5_1", "q8_0"),
    *("experts", "vector", "narrow", "last"),
)


def matrix_of(tensors: Mapping[str, Any], name: str) -> mo.Q4_0Matrix:
    tensor = tensors[name]
    assert isinstance(tensor, mo.Q4_0Matrix)
    return tensor


def tensor_of(tensors: Mapping[str, Any], name: str) -> mo.gguf.GGUFTensor:
    tensor = tensors[name]
    assert isinstance(tensor, mo.gguf.GGUFTensor)
    return tensor


def read_everything(path: Path) -> None:
    """Load a file and touch every tensor of it."""
    with mo.gguf.load(path) as tensors:
        for tensor in tensors.values():
            if isinstance(tensor, mo.Q4_0Matrix):
                tensor.blocks.sum()
            else:
                tensor.dequantize().sum()


def test_it_is_a_mapping_in_the_order_of_the_file(path: Path) -> None:
    with mo.gguf.load(path) as tensors:
        assert isinstance(tensors, Mapping)
        assert tuple(tensors) == NAMES
        assert tuple(tensors.keys()) == NAMES
        assert len(tensors) == len(NAMES)
        assert "q4_0" in tensors
        assert "nothing" not in tensors
        assert tensors.get("nothing") is None
        with raises(KeyError, "nothing"):
            tensors["nothing"]


@pytest.mark.parametrize("kind", [str, Path, os.fsencode])
def test_any_kind_of_path(kind: Callable[[Path], Any], path: Path) -> None:
    with mo.gguf.load(kind(path)) as tensors:
        assert len(tensors) == len(NAMES)


def test_the_metadata_are_python_values(path: Path) -> None:
    with mo.gguf.load(path) as tensors:
        assert tensors.metadata["general.architecture"] == "test"
        for key, expected in METADATA.items():
            value = tensors.metadata[key]
            assert type(value) is type(expected), key
            assert value == expected, key
        strings = tensors.metadata["test.strings"]
        assert all(type(string) is str for string in strings)


def test_a_q4_0_matrix(
    path: Path, q4_0: npt.NDArray[np.uint8], device: str, rng: np.random.Generator
) -> None:
    with mo.gguf.load(path) as tensors:
        matrix = matrix_of(tensors, "q4_0")
        assert matrix.shape == (33, 96)
        np.testing.assert_array_equal(matrix.blocks, q4_0)
        x = normal_input(rng, 3, 96)
        copied = mo.Q4_0Matrix.from_blocks(q4_0, (33, 96))
        assert_bits_equal(
            mo.mul_mv_q4_0(matrix, x, device=device), mo.mul_mv_q4_0(copied, x, device=device)
        )
        assert_bits_equal(
            mo.mul_mv_q4_0(matrix[5:14], x, device=device),
            mo.mul_mv_q4_0(copied[5:14], x, device=device),
        )


def test_a_matrix_at_the_very_end_of_the_file(
    tmp_path: Path, q4_0: npt.NDArray[np.uint8], device: str, rng: np.random.Generator
) -> None:
    """Without the padding after it: nothing past the last byte may be touched."""
    path = write_gguf(
        tmp_path / "end.gguf", lambda writer: writer.add_tensor("w", q4_0, raw_dtype=GGMLType.Q4_0)
    )
    data = path.read_bytes()
    end = data.rindex(q4_0.tobytes()) + q4_0.nbytes
    path.write_bytes(data[:end])
    x = normal_input(rng, 3, 96)
    expected = mo.mul_mv_q4_0(mo.Q4_0Matrix.from_blocks(q4_0, (33, 96)), x, device=device)
    with mo.gguf.load(path) as tensors:
        result = mo.mul_mv_q4_0(matrix_of(tensors, "w"), x, device=device)
    assert_bits_equal(result, expected)


def test_a_q4_0_matrix_is_not_copied(path: Path) -> None:
    with mo.gguf.load(path) as tensors:
        first, second = matrix_of(tensors, "q4_0"), matrix_of(tensors, "q4_0")
        assert np.shares_memory(first.blocks, second.blocks)
        assert np.shares_memory(first[3:5].blocks, second.blocks)
        assert not first.blocks.flags.writeable
        with pytest.raises(ValueError, match="WRITEABLE"):
            first.blocks.flags.writeable = True


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_its_blocks_lie_in_the_memory_map(path: Path) -> None:
    with mo.gguf.load(path) as tensors:
        address = matrix_of(tensors, "q4_0").blocks.ctypes.data
        mapped = []
        for line in Path("/proc/self/maps").read_text().splitlines():
            start, end = (int(part, 16) for part in line.split()[0].split("-"))
            if start <= address < end:
                mapped.append(line)
        assert len(mapped) == 1
        assert mapped[0].endswith(str(path.resolve()))
        assert "w" not in mapped[0].split()[1]


def test_loading_reads_no_tensor(tmp_path: Path) -> None:
    """A file with a hole of 36 GiB is loaded, and the end of it is used."""
    N, K = 1024, 2**26
    path = tmp_path / "large.gguf"

    def add_info(writer: gguf.GGUFWriter) -> None:
        size = N * K // 32 * 18
        writer.add_tensor_info("large", (N, K // 32 * 18), np.dtype(np.uint8), size, GGMLType.Q4_0)

    writer = gguf.GGUFWriter(path, "test")
    add_info(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    os.truncate(path, path.stat().st_size + 64 + N * K // 32 * 18)
    with mo.gguf.load(path) as tensors:
        matrix = matrix_of(tensors, "large")
        assert matrix.shape == (N, K)
        assert not matrix[N - 1 :].blocks[0, -100:].any()


def test_an_ordinary_tensor(path: Path, dense: npt.NDArray[np.float32]) -> None:
    with mo.gguf.load(path) as tensors:
        tensor = tensor_of(tensors, "f32")
        assert tensor.name == "f32"
        assert tuple(tensor.shape) == (8, 256)
        assert tensor.type == "F32"
        assert "f32" in repr(tensor)
        assert "256" in repr(tensor)
        assert tuple(tensor_of(tensors, "norm").shape) == (256,)
        assert_bits_equal(tensor.dequantize(), dense)
        assert_bits_equal(tensor_of(tensors, "norm").dequantize(), dense[0])


@pytest.mark.parametrize("name", ["f16", "bf16", "q4_1", "q5_0", "q5_1", "q8_0"])
def test_dequantising_equals_gguf(name: str, path: Path, dense: npt.NDArray[np.float32]) -> None:
    type_ = GGMLType[name.upper()]
    expected = gguf.dequantize(gguf.quantize(dense, type_), type_)
    with mo.gguf.load(path) as tensors:
        tensor = tensor_of(tensors, name)
        assert tensor.type == type_.name
        assert tuple(tensor.shape) == dense.shape
        assert_bits_equal(tensor.dequantize(), np.asarray(expected, np.float32))


@pytest.mark.parametrize("name", ["f32", "f16", "bf16", "q4_1", "q8_0"])
def test_quantising_a_tensor(name: str, path: Path) -> None:
    with mo.gguf.load(path) as tensors:
        tensor = tensor_of(tensors, name)
        matrix = tensor.quantize()
        assert isinstance(matrix, mo.Q4_0Matrix)
        assert matrix.shape == (8, 256)
        expected = mo.Q4_0Matrix.quantize(tensor.dequantize())
        np.testing.assert_array_equal(matrix.blocks, expected.blocks)


def test_what_cannot_be_quantised(path: Path) -> None:
    with mo.gguf.load(path) as tensors:
        for name in ("norm", "experts"):
            with raises(ValueError, name):
                tensor_of(tensors, name).quantize()
        with raises(ValueError, "narrow", r"\b40\b", r"\b32\b"):
            tensor_of(tensors, "narrow").quantize()


def test_q4_0_that_is_no_matrix(path: Path, q4_0: npt.NDArray[np.uint8]) -> None:
    expected = gguf.dequantize(q4_0, GGMLType.Q4_0)
    with mo.gguf.load(path) as tensors:
        experts = tensor_of(tensors, "experts")
        assert tuple(experts.shape) == (3, 11, 96)
        assert experts.type == "Q4_0"
        assert_bits_equal(experts.dequantize(), expected.reshape(3, 11, 96))
        vector = tensor_of(tensors, "vector")
        assert tuple(vector.shape) == (96,)
        assert_bits_equal(vector.dequantize(), expected[0])


def test_what_was_dequantised_is_the_callers_own(
    path: Path, dense: npt.NDArray[np.float32]
) -> None:
    with mo.gguf.load(path) as tensors:
        values = tensor_of(tensors, "f32").dequantize()
    values[:] = 0
    with mo.gguf.load(path) as tensors:
        assert_bits_equal(tensor_of(tensors, "f32").dequantize(), dense)


def test_after_it_is_closed(path: Path) -> None:
    with mo.gguf.load(path) as tensors:
        pass
    with pytest.raises(ValueError, match="closed"):
        tensors["q4_0"]
    with pytest.raises(ValueError, match="closed"):
        tensors["f32"]
    with pytest.raises(ValueError, match="closed"), tensors:
        pass


def test_close_can_be_called_again(path: Path) -> None:
    tensors = mo.gguf.load(path)
    tensors.close()
    tensors.close()
    with pytest.raises(ValueError, match="closed"):
        tensors["q4_0"]


def test_a_matrix_stays_valid_after_close(
    path: Path, q4_0: npt.NDArray[np.uint8], device: str, rng: np.random.Generator
) -> None:
    with mo.gguf.load(path) as tensors:
        matrix = matrix_of(tensors, "q4_0")
        part = matrix[30:]
        view = matrix_of(tensors, "last").blocks
    del tensors
    gc.collect()
    np.testing.assert_array_equal(matrix.blocks, q4_0)
    np.testing.assert_array_equal(part.blocks, q4_0[30:])
    np.testing.assert_array_equal(view, q4_0[:1])
    x = normal_input(rng, 3, 96)
    expected = mo.mul_mv_q4_0(mo.Q4_0Matrix.from_blocks(q4_0, (33, 96)), x, device=device)
    assert_bits_equal(mo.mul_mv_q4_0(matrix, x, device=device), expected)


def test_a_matrix_stays_valid_without_close(path: Path, q4_0: npt.NDArray[np.uint8]) -> None:
    matrix = matrix_of(mo.gguf.load(path), "q4_0")
    gc.collect()
    np.testing.assert_array_equal(matrix.blocks, q4_0)


def test_an_exception_passes_through(path: Path) -> None:
    with pytest.raises(ZeroDivisionError), mo.gguf.load(path) as tensors:
        raise ZeroDivisionError
    with pytest.raises(ValueError, match="closed"):
        tensors["q4_0"]


# Files that are not what they should be

SECOND = 128  # the offset of the second tensor of the file below


@pytest.fixture
def small(tmp_path: Path, q4_0: npt.NDArray[np.uint8]) -> Path:
    """A file with a short header and two tensors."""

    def add(writer: gguf.GGUFWriter) -> None:
        writer.add_uint32("test.uint32", 7)
        writer.add_array("test.strings", ["a", "bb"])
        writer.add_tensor("first", q4_0[:2], raw_dtype=GGMLType.Q4_0)
        writer.add_tensor("second", np.arange(5, dtype=np.float32))

    return write_gguf(tmp_path / "small.gguf", add)


def test_truncated_anywhere(small: Path) -> None:
    """At every byte of the header and of the data, but for the padding after the last tensor."""
    data = small.read_bytes()
    last = np.arange(5, dtype=np.float32).tobytes()
    end = data.rindex(last) + len(last)
    truncated = small.with_name("truncated.gguf")
    for size in range(1, end):
        truncated.write_bytes(data[:size])
        with raises(ValueError, "truncated.gguf"):
            read_everything(truncated)
    truncated.write_bytes(data[:end])
    read_everything(truncated)


def test_truncated_data_name_the_tensor(small: Path) -> None:
    data = small.read_bytes()
    second = data.rindex(np.arange(5, dtype=np.float32).tobytes())
    truncated = small.with_name("truncated.gguf")
    truncated.write_bytes(data[: second + 19])
    with raises(ValueError, "truncated.gguf", "second"):
        read_everything(truncated)
    truncated.write_bytes(data[: second - 64])
    with raises(ValueError, "truncated.gguf", "first|second"):
        read_everything(truncated)


@pytest.mark.parametrize(
    "offset", [SECOND + 32, 2**20, 2**31, 2**40, 2**63 - 32, 2**63, 2**64 - 64, 2**64 - 32]
)
def test_a_tensor_that_reaches_past_the_end(offset: int, small: Path) -> None:
    data = bytearray(small.read_bytes())
    place = data.index(b"second") + len(b"second") + 4 + 8 + 4
    assert struct.unpack_from("<Q", data, place) == (SECOND,)
    struct.pack_into("<Q", data, place, offset)
    small.write_bytes(data[: data.rindex(np.arange(5, dtype=np.float32).tobytes()) + 20])
    with raises(ValueError, "small.gguf", "second"):
        read_everything(small)


@pytest.mark.parametrize("dimension", [6, 2**31, 2**32 + 5, 2**61, 2**62 + 5, 2**63, 2**64 - 1])
def test_a_tensor_larger_than_the_file(dimension: int, small: Path) -> None:
    data = bytearray(small.read_bytes())
    place = data.index(b"second") + len(b"second") + 4
    assert struct.unpack_from("<Q", data, place) == (5,)
    struct.pack_into("<Q", data, place, dimension)
    small.write_bytes(data[: data.rindex(np.arange(5, dtype=np.float32).tobytes()) + 20])
    with raises(ValueError, "small.gguf", "second"):
        read_everything(small)


@pytest.mark.parametrize("sizes", [(96, 2**60), (2**35, 2**35), (2**32, 2**32), (32, 2**63)])
def test_a_matrix_larger_than_the_file(sizes: tuple[int, int], small: Path) -> None:
    """Sizes whose product, or number of bytes, wraps around in 64 bits."""
    data = bytearray(small.read_bytes())
    place = data.index(b"first") + len(b"first") + 4
    assert struct.unpack_from("<2Q", data, place) == (96, 2)
    struct.pack_into("<2Q", data, place, *sizes)
    small.write_bytes(data)
    with raises(ValueError, "small.gguf", "first"):
        read_everything(small)


@pytest.mark.parametrize("sizes", [(33, 2), (16, 2), (0, 2), (96, 0)])
def test_a_matrix_of_no_whole_blocks(sizes: tuple[int, int], small: Path) -> None:
    data = bytearray(small.read_bytes())
    place = data.index(b"first") + len(b"first") + 4
    struct.pack_into("<2Q", data, place, *sizes)
    small.write_bytes(data)
    with raises(ValueError, "small.gguf", "first"):
        read_everything(small)


@pytest.mark.parametrize(
    ("place", "value"), [(4, 99), (8, 2**40), (8, 2**64 - 1), (16, 2**40), (16, 2**64 - 1)]
)
def test_a_header_that_promises_too_much(place: int, value: int, small: Path) -> None:
    """The version, the number of tensors, the number of metadata."""
    data = bytearray(small.read_bytes())
    struct.pack_into("<I" if place == 4 else "<Q", data, place, value)
    small.write_bytes(data)
    with raises(ValueError, "small.gguf"):
        read_everything(small)


def test_any_damaged_byte_of_the_header(small: Path) -> None:
    """Whatever it makes of the file, it is read or refused."""
    data = small.read_bytes()
    for place in range(data.index(b"second") + len(b"second") + 24):
        for value in (0x00, 0x7F, 0xFF, data[place] ^ 1, data[place] ^ 0x80):
            small.write_bytes(data[:place] + bytes([value]) + data[place + 1 :])
            with contextlib.suppress(ValueError):
                read_everything(small)


def test_a_type_that_does_not_exist(small: Path) -> None:
    data = bytearray(small.read_bytes())
    struct.pack_into("<I", data, data.index(b"second") + len(b"second") + 4 + 8, 12345)
    small.write_bytes(data)
    with raises(ValueError, "small.gguf"):
        read_everything(small)


@pytest.mark.parametrize(
    "content",
    [b"", b"G", b"GGUF", b"not a model", b"GGML" + bytes(100), bytes(100), b"GGUF" + bytes(100)],
    ids=repr,
)
def test_a_file_that_is_not_gguf(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "other.bin"
    file.write_bytes(content)
    with raises(ValueError, "other.bin"):
        mo.gguf.load(file)


def test_a_directory(tmp_path: Path) -> None:
    with raises((ValueError, IsADirectoryError), tmp_path.name):
        mo.gguf.load(tmp_path)


def test_a_missing_file(tmp_path: Path) -> None:
    with raises(FileNotFoundError, "missing.gguf"):
        mo.gguf.load(tmp_path / "missing.gguf")


@pytest.mark.parametrize("wrong", [None, 3.5, b"\0" * 3, ["model.gguf"]])
def test_something_that_is_no_path(wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        mo.gguf.load(wrong)


def test_without_the_extra(path: Path) -> None:
    printed = fresh_python.run(
        f"""
        import sys

        sys.modules["gguf"] = None
        import mlxops as mo

        try:
            mo.gguf.load({str(path)!r})
        except ImportError as error:
            print(error)
        """
    )
    assert "pip install" in printed
    assert "[gguf]" in printed


def test_the_package_gguf_is_imported_when_it_is_needed(path: Path) -> None:
    printed = fresh_python.run(
        f"""
        import sys

        import mlxops as mo

        before = "gguf" in sys.modules
        mo.gguf.load({str(path)!r}).close()
        print(before, "gguf" in sys.modules)
        """
    )
    assert printed == "False True\n"


def test_the_demo_model(model_path: Path) -> None:
    with mo.gguf.load(model_path) as tensors:
        assert tensors.metadata["general.architecture"] == "llama"
        hidden_size = tensors.metadata["llama.embedding_length"]
        assert tuple(tensors["token_embd.weight"].shape)[1] == hidden_size


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)
    with raises(ValueError, "pipe.gguf", "no regular file"):
        mo.gguf.load(pipe)


@pytest.mark.parametrize("number", [0, 1, True])
def test_a_file_descriptor_is_refused_and_stays_open(number: int) -> None:
    with pytest.raises(TypeError):
        mo.gguf.load(number)  # type: ignore[arg-type]
    os.fstat(number)


def test_a_path_of_bytes(path: Path) -> None:
    with mo.gguf.load(os.fsencode(path)) as tensors:  # type: ignore[arg-type]
        assert str(path) in repr(tensors)


def test_too_much_metadata_is_refused(tmp_path: Path) -> None:
    """The package gguf makes an object of each element."""
    path = tmp_path / "metadata.gguf"
    count = 1_100_000
    array = struct.pack("<Q", 1) + b"a" + struct.pack("<IIQ", 9, 0, count) + bytes(count)
    other = array.replace(b"a", b"b", 1)
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + array + other)
    with raises(ValueError, "metadata.gguf", "'b'", "1100000"):
        mo.gguf.load(path)


def test_big_endian_files_are_named_so(tmp_path: Path) -> None:
    path = tmp_path / "big.gguf"
    path.write_bytes(b"GGUF" + struct.pack(">IQQ", 3, 0, 0))
    with raises(ValueError, "big.gguf", "big-endian"):
        mo.gguf.load(path)


def test_dequantised_floats_are_ordinary_arrays(path: Path) -> None:
    with mo.gguf.load(path) as tensors:
        for name in ("f32", "f16", "q8_0", "norm"):
            assert type(tensor_of(tensors, name).dequantize()) is np.ndarray


# ---- Saving --------------------------------------------------------------------------------------


@pytest.fixture
def everything(rng: np.random.Generator, q4_0: npt.NDArray[np.uint8]) -> dict[str, Any]:
    """Tensors of every kind that can be saved."""
    return {
        "q4_0": mo.Q4_0Matrix.from_blocks(q4_0, (33, 96)),
        "slice": mo.Q4_0Matrix.from_blocks(q4_0, (33, 96))[5:14],
        "norm": rng.standard_normal(96, np.float32),
        "half": rng.standard_normal((4, 6)).astype(np.float16),
        "wide": rng.standard_normal((2, 3, 5)),
        "strided": rng.standard_normal((8, 6), np.float32)[::2, ::-1],
        "swapped": rng.standard_normal(7, np.float32).astype(">f4"),
    }


def test_what_was_saved_is_read_back(tmp_path: Path, everything: dict[str, Any]) -> None:
    path = tmp_path / "größer.gguf"
    metadata: dict[str, Any] = {
        "general.architecture": "test",
        "a": "ü",
        "b": True,
        "c": -(2**40),
        "d": 0.1,
    }
    mo.gguf.save(path, everything, metadata)
    assert list(tmp_path.iterdir()) == [path]
    with mo.gguf.load(path) as file:
        assert list(file) == list(everything)
        for key, value in metadata.items():
            assert file.metadata[key] == value
            assert type(file.metadata[key]) is type(value)
        for name, tensor in everything.items():
            if isinstance(tensor, mo.Q4_0Matrix):
                assert matrix_of(file, name).blocks.tobytes() == tensor.blocks.tobytes()
            else:
                found = tensor_of(file, name)
                assert found.shape == tensor.shape
                np.testing.assert_array_equal(found.dequantize(), tensor.astype(np.float32))


def test_the_package_reads_what_was_saved(tmp_path: Path, everything: dict[str, Any]) -> None:
    mo.gguf.save(tmp_path / "file.gguf", everything)
    reader = gguf.GGUFReader(tmp_path / "file.gguf")
    found = {tensor.name: tensor for tensor in reader.tensors}
    assert found["q4_0"].tensor_type == GGMLType.Q4_0
    assert found["q4_0"].data.tobytes() == everything["q4_0"].blocks.tobytes()
    assert found["wide"].tensor_type == GGMLType.F64
    np.testing.assert_array_equal(found["wide"].data, everything["wide"])
    np.testing.assert_array_equal(found["swapped"].data, everything["swapped"])
    field = reader.get_field("general.architecture")
    assert field is not None
    assert field.contents() == "mlxops"


def test_tensors_of_a_file_are_saved_as_they_are(path: Path, tmp_path: Path) -> None:
    with mo.gguf.load(path) as file:
        mo.gguf.save(tmp_path / "copy.gguf", file)
        with mo.gguf.load(tmp_path / "copy.gguf") as copy:
            assert list(copy) == list(file)
            for name, tensor in file.items():
                if isinstance(tensor, mo.Q4_0Matrix):
                    assert matrix_of(copy, name).blocks.tobytes() == tensor.blocks.tobytes()
                else:
                    found = tensor_of(copy, name)
                    assert (found.type, found.shape) == (tensor.type, tensor.shape)
                    assert np.asarray(found._data).tobytes() == np.asarray(tensor._data).tobytes()


def test_a_file_is_replaced_by_a_whole_one_only(
    path: Path, q4_0: npt.NDArray[np.uint8], tmp_path: Path
) -> None:
    """Also by one of what is mapped from it."""
    before = path.read_bytes()
    for wrong in ({}, {"a": np.ones(3, int)}, {"a": np.ones(3, np.float32), "b": "text"}):
        with pytest.raises((TypeError, ValueError)):
            mo.gguf.save(path, wrong)  # type: ignore[arg-type]
        assert path.read_bytes() == before
        assert list(tmp_path.iterdir()) == [path]
    with mo.gguf.load(path) as file:
        matrix = matrix_of(file, "q4_0")
        mo.gguf.save(path, {"new": matrix})
        assert matrix.blocks.tobytes() == q4_0.tobytes()
    with mo.gguf.load(path) as file:
        assert matrix_of(file, "new").blocks.tobytes() == q4_0.tobytes()


@pytest.mark.parametrize(
    ("tensors", "metadata", "error", "match"),
    [
        ({}, None, ValueError, "no tensor to save"),
        ({"a": np.ones(3, np.int32)}, None, TypeError, "tensor 'a' is int32; a Q4_0Matrix"),
        ({"a": [1.0]}, None, TypeError, "tensor 'a' is list"),
        ({"a" * 64: np.ones(3)}, None, ValueError, "more than 63 bytes"),
        ({"ü" * 32: np.ones(3)}, None, ValueError, "more than 63 bytes"),
        ({"a": np.ones(3)}, {"b": [1]}, TypeError, "metadata 'b' is list"),
        ({"a": np.ones(3)}, {"b": None}, TypeError, "metadata 'b' is NoneType"),
    ],
)
def test_what_cannot_be_saved(
    tensors: Any, metadata: Any, error: type[Exception], match: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=match):
        mo.gguf.save(tmp_path / "file.gguf", tensors, metadata)
    assert not list(tmp_path.iterdir())


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    for place in (tmp_path / "missing" / "file.gguf", tmp_path):
        with pytest.raises(OSError, match=r"\w"):
            mo.gguf.save(place, {"a": np.ones(3, np.float32)})
    assert not list(tmp_path.iterdir())


def test_names_of_the_longest_kind(tmp_path: Path) -> None:
    mo.gguf.save(tmp_path / "file.gguf", {"a" * 63: np.ones(3, np.float32)})
    with mo.gguf.load(tmp_path / "file.gguf") as file:
        assert list(file) == ["a" * 63]
