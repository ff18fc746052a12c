"""Q4_0Matrix: an immutable matrix whose rows are shared, stacked, copied and pickled."""

import copy
import gc
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import mlxops as mo
from mlxops.testing import assert_bits_equal
from q4_0_data import normal_input, random_blocks
from raising import raises, word

N, K = 20, 96
ROW_BYTES = K // 32 * 18


@pytest.fixture
def blocks(rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    return random_blocks(rng, N, K)


@pytest.fixture
def matrix(blocks: npt.NDArray[np.uint8]) -> mo.Q4_0Matrix:
    return mo.Q4_0Matrix.from_blocks(blocks, (N, K))


def test_what_it_is(matrix: mo.Q4_0Matrix, blocks: npt.NDArray[np.uint8]) -> None:
    assert matrix.shape == (N, K)
    assert matrix.nbytes == N * ROW_BYTES
    assert len(matrix) == N
    np.testing.assert_array_equal(matrix.blocks, blocks)


def test_its_repr_says_what_it_is(matrix: mo.Q4_0Matrix) -> None:
    assert "Q4_0Matrix" in repr(matrix)
    assert str(N) in repr(matrix)
    assert str(K) in repr(matrix)


@pytest.mark.parametrize(
    "source",
    [
        bytes,
        bytearray,
        memoryview,
        lambda flat: flat,
        lambda flat: flat.reshape(N, ROW_BYTES),
        lambda flat: flat.reshape(N, K // 32, 18),
        lambda flat: np.concatenate([[np.uint8(0)], flat])[1:],
        lambda flat: flat.repeat(2)[::2],
        lambda flat: np.asfortranarray(flat.reshape(N, ROW_BYTES)),
    ],
    ids=[
        *("bytes", "bytearray", "memoryview", "array", "rows", "blocks", "odd address"),
        *("strided", "Fortran order"),
    ],
)
def test_from_any_buffer(
    source: Callable[[npt.NDArray[np.uint8]], Any], blocks: npt.NDArray[np.uint8]
) -> None:
    matrix = mo.Q4_0Matrix.from_blocks(source(blocks.ravel()), (N, K))
    np.testing.assert_array_equal(matrix.blocks, blocks)


def test_from_a_read_only_buffer(blocks: npt.NDArray[np.uint8]) -> None:
    blocks.flags.writeable = False
    matrix = mo.Q4_0Matrix.from_blocks(blocks, (N, K))
    np.testing.assert_array_equal(matrix.blocks, blocks)


def test_from_blocks_copies(blocks: npt.NDArray[np.uint8]) -> None:
    source = bytearray(blocks.tobytes())
    matrix = mo.Q4_0Matrix.from_blocks(source, (N, K))
    source[:] = bytes(len(source))
    source.clear()
    np.testing.assert_array_equal(matrix.blocks, blocks)


@pytest.mark.parametrize("there", [0, 1, N * ROW_BYTES - 1, N * ROW_BYTES + 1, 2 * N * ROW_BYTES])
def test_from_a_buffer_of_the_wrong_size(there: int) -> None:
    with raises(ValueError, rf"\b{N * ROW_BYTES}\b", rf"\b{there}\b"):
        mo.Q4_0Matrix.from_blocks(bytes(there), (N, K))


@pytest.mark.parametrize(
    ("size", "named"), [((0, 32), "N"), ((-1, 32), "N"), ((1, 0), "K"), ((1, -32), "K")]
)
def test_from_blocks_with_nothing_in_them(size: tuple[int, int], named: str) -> None:
    with raises(ValueError, word(named)):
        mo.Q4_0Matrix.from_blocks(bytes(18), size)


@pytest.mark.parametrize("width", [1, 31, 33, 48])
def test_from_blocks_with_part_of_a_block(width: int) -> None:
    with raises(ValueError, rf"\b{width}\b", r"\b32\b"):
        mo.Q4_0Matrix.from_blocks(bytes(18), (1, width))


@pytest.mark.parametrize(
    "size", [(2**31, 32), (1, 2**31), (2**31 - 1, 2**31 - 32), (2**62, 32), (2**70, 32)]
)
def test_from_blocks_with_a_shape_beyond_the_limits(size: tuple[int, int]) -> None:
    with pytest.raises((ValueError, OverflowError)):
        mo.Q4_0Matrix.from_blocks(bytes(18), size)


@pytest.mark.parametrize("size", [(), (32,), (1, 1, 32), 32, None, "12", (1.0, 32), (1, None)])
def test_from_blocks_with_something_that_is_no_shape(size: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        mo.Q4_0Matrix.from_blocks(bytes(18), size)


@pytest.mark.parametrize("source", [None, 3, "x" * 18, [0] * 18, object()])
def test_from_something_that_is_no_buffer(source: Any) -> None:
    with pytest.raises(TypeError):
        mo.Q4_0Matrix.from_blocks(source, (1, 32))


def test_blocks_is_a_read_only_view(matrix: mo.Q4_0Matrix) -> None:
    view = matrix.blocks
    assert type(view) is np.ndarray
    assert view.dtype == np.uint8
    assert view.shape == (N, ROW_BYTES)
    assert view.flags.c_contiguous
    assert np.shares_memory(view, matrix.blocks)
    with pytest.raises(ValueError, match="read-only"):
        view[0, 0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        view.flags.writeable = True


def test_blocks_outlives_the_matrix(blocks: npt.NDArray[np.uint8]) -> None:
    view = mo.Q4_0Matrix.from_blocks(blocks, (N, K)).blocks
    gc.collect()
    mo.Q4_0Matrix.from_blocks(bytes(N * ROW_BYTES), (N, K))
    np.testing.assert_array_equal(view, blocks)


@pytest.mark.parametrize("name", ["shape", "nbytes", "blocks", "another"])
def test_attributes_cannot_be_set(name: str, matrix: mo.Q4_0Matrix) -> None:
    with pytest.raises(AttributeError):
        setattr(matrix, name, None)


def test_rows_cannot_be_set(matrix: mo.Q4_0Matrix) -> None:
    with pytest.raises(TypeError):
        matrix[0:1] = matrix[1:2]  # type: ignore[index]
    with pytest.raises(TypeError):
        del matrix[0:1]  # type: ignore[attr-defined]


def test_it_is_made_by_its_constructors_only() -> None:
    with pytest.raises(TypeError):
        mo.Q4_0Matrix()


@pytest.mark.parametrize(
    "rows",
    [
        slice(2, 5),
        slice(None),
        slice(3, None),
        slice(None, 3),
        slice(-3, None),
        slice(None, -3),
        slice(-5, -1),
        slice(0, 1),
        slice(N - 1, N),
        slice(4, 1000),
        slice(-1000, 4),
        slice(2, 5, 1),
        slice(np.int64(2), np.int32(5)),
    ],
    ids=str,
)
def test_slices_are_those_of_python(
    rows: slice, matrix: mo.Q4_0Matrix, blocks: npt.NDArray[np.uint8]
) -> None:
    part = matrix[rows]
    assert isinstance(part, mo.Q4_0Matrix)
    assert part.shape == (len(blocks[rows]), K)
    assert len(part) == len(blocks[rows])
    assert part.nbytes == blocks[rows].nbytes
    np.testing.assert_array_equal(part.blocks, blocks[rows])
    assert_bits_equal(part.dequantize(), matrix.dequantize()[rows])


def test_a_slice_of_a_slice(matrix: mo.Q4_0Matrix, blocks: npt.NDArray[np.uint8]) -> None:
    np.testing.assert_array_equal(matrix[3:17][2:-2][1:4].blocks, blocks[6:9])


def test_slices_share_memory(matrix: mo.Q4_0Matrix) -> None:
    assert np.shares_memory(matrix[3:7].blocks, matrix.blocks[3:7])
    assert not np.shares_memory(matrix[3:7].blocks, matrix.blocks[7:])


def test_a_slice_keeps_the_memory_alive(blocks: npt.NDArray[np.uint8]) -> None:
    part = mo.Q4_0Matrix.from_blocks(blocks, (N, K))[5:9]
    gc.collect()
    mo.Q4_0Matrix.from_blocks(bytes(N * ROW_BYTES), (N, K))
    np.testing.assert_array_equal(part.blocks, blocks[5:9])


@pytest.mark.parametrize(
    "index",
    [
        *(slice(None, None, step) for step in (2, -1, 0)),
        *(slice(3, 3), slice(5, 2), slice(N, None), slice(None, 0), slice(1000, 2000)),
        *(0, -1, N, np.int64(1), None, ..., "0", (slice(0, 1), slice(0, 1)), [0, 1], 1.5, True),
    ],
    ids=str,
)
def test_anything_else_is_no_slice(index: Any, matrix: mo.Q4_0Matrix) -> None:
    with pytest.raises((IndexError, ValueError)):
        matrix[index]


def test_concat(rng: np.random.Generator) -> None:
    sizes = (1, 7, 32)
    parts = [random_blocks(rng, n, K) for n in sizes]
    matrices = [
        mo.Q4_0Matrix.from_blocks(part, (n, K)) for part, n in zip(parts, sizes, strict=True)
    ]
    for sequence in (matrices, tuple(matrices)):
        together = mo.Q4_0Matrix.concat(sequence)
        assert together.shape == (40, K)
        np.testing.assert_array_equal(together.blocks, np.concatenate(parts))


def test_concat_of_one_and_of_slices(matrix: mo.Q4_0Matrix, blocks: npt.NDArray[np.uint8]) -> None:
    np.testing.assert_array_equal(mo.Q4_0Matrix.concat([matrix]).blocks, blocks)
    np.testing.assert_array_equal(
        mo.Q4_0Matrix.concat([matrix[7:], matrix[:7], matrix[3:4]]).blocks,
        np.concatenate([blocks[7:], blocks[:7], blocks[3:4]]),
    )


def test_concat_of_different_widths(matrix: mo.Q4_0Matrix) -> None:
    other = mo.Q4_0Matrix.from_blocks(bytes(3 * 36), (3, 64))
    with raises(ValueError, rf"\b{K}\b", r"\b64\b"):
        mo.Q4_0Matrix.concat([matrix, other])


def test_concat_of_nothing() -> None:
    with raises(ValueError, "concat|empty|at least one|no matri"):
        mo.Q4_0Matrix.concat([])


@pytest.mark.parametrize("wrong", [None, 3, b"\0" * 18, np.zeros((1, 96), np.float32)], ids=type)
def test_concat_of_something_else(wrong: Any, matrix: mo.Q4_0Matrix) -> None:
    with pytest.raises(TypeError):
        mo.Q4_0Matrix.concat([matrix, wrong])
    with pytest.raises(TypeError):
        mo.Q4_0Matrix.concat(wrong)


def duplicates() -> dict[str, Callable[[mo.Q4_0Matrix], mo.Q4_0Matrix]]:
    """Every way Python has to copy an object."""
    ways: dict[str, Callable[[mo.Q4_0Matrix], mo.Q4_0Matrix]] = {
        f"pickle protocol {protocol}": lambda matrix, protocol=protocol: pickle.loads(  # type: ignore[misc]
            pickle.dumps(matrix, protocol)
        )
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    }
    return ways | {"copy": copy.copy, "deepcopy": copy.deepcopy}


@pytest.mark.parametrize("duplicate", duplicates().values(), ids=duplicates().keys())
@pytest.mark.parametrize("rows", [slice(None), slice(3, 8)], ids=["matrix", "slice"])
def test_copies_are_equal_and_complete(
    duplicate: Callable[[mo.Q4_0Matrix], mo.Q4_0Matrix],
    rows: slice,
    device: str,
    matrix: mo.Q4_0Matrix,
    rng: np.random.Generator,
) -> None:
    original = matrix[rows]
    twin = duplicate(original)
    assert type(twin) is mo.Q4_0Matrix
    assert twin.shape == original.shape
    np.testing.assert_array_equal(twin.blocks, original.blocks)
    with pytest.raises(ValueError, match="read-only"):
        twin.blocks[0, 0] = 1
    x = normal_input(rng, 2, K)
    assert_bits_equal(
        mo.mul_mv_q4_0(twin, x, device=device), mo.mul_mv_q4_0(original, x, device=device)
    )


def test_a_pickled_slice_holds_its_rows_only(matrix: mo.Q4_0Matrix) -> None:
    assert len(pickle.dumps(matrix[3:4])) < ROW_BYTES + 500


def test_dequantize_gives_a_new_array_each_time(matrix: mo.Q4_0Matrix) -> None:
    first = matrix.dequantize()
    expected = first.copy()
    first[:] = 0
    assert_bits_equal(matrix.dequantize(), expected)
