"""out=: results go into the caller's arrays, and only there."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import mlxops as mo
from foreign_arrays import ArrayInterface, DLPackArray
from guarded import GuardedArray
from mlxops.testing import assert_bits_equal
from q4_0_data import normal_input, random_blocks
from raising import raises, shape, word

N, K, M = 33, 96, 5
SPANS = (3, 4, 6)


@pytest.fixture
def weight(rng: np.random.Generator) -> mo.Q4_0Matrix:
    return mo.Q4_0Matrix.from_blocks(random_blocks(rng, N, K), (N, K))


@pytest.fixture
def weight_b(rng: np.random.Generator) -> mo.Q4_0Matrix:
    return mo.Q4_0Matrix.from_blocks(random_blocks(rng, N, K), (N, K))


@pytest.fixture
def x(rng: np.random.Generator) -> npt.NDArray[np.float32]:
    return normal_input(rng, M, K)


@pytest.fixture
def qkv(rng: np.random.Generator) -> npt.NDArray[np.float32]:
    return normal_input(rng, M, sum(SPANS))


@pytest.mark.parametrize("leading", [(), (1,), (M,), (2, 3)], ids=str)
def test_one_result(
    leading: tuple[int, ...], device: str, weight: mo.Q4_0Matrix, rng: np.random.Generator
) -> None:
    x = rng.standard_normal((*leading, K), np.float32)
    out = GuardedArray((*leading, N))
    assert mo.mul_mv_q4_0(weight, x, out=out.array, device=device) is out.array
    out.assert_guards_untouched()
    assert_bits_equal(out.array, mo.mul_mv_q4_0(weight, x, device=device))


@pytest.mark.parametrize("sequence", [tuple, list])
def test_one_result_as_a_sequence(
    sequence: type, device: str, weight: mo.Q4_0Matrix, x: npt.NDArray[np.float32]
) -> None:
    out = GuardedArray((M, N))
    assert mo.mul_mv_q4_0(weight, x, out=sequence([out.array]), device=device) is out.array
    assert_bits_equal(out.array, mo.mul_mv_q4_0(weight, x, device=device))


@pytest.mark.parametrize("count", [0, 2, 3])
def test_not_one_array_for_one_result(
    count: int, device: str, weight: mo.Q4_0Matrix, x: npt.NDArray[np.float32]
) -> None:
    outs = [GuardedArray((M, N)) for _ in range(count)]
    with raises(ValueError, r"\b(1|one)\b"):
        mo.mul_mv_q4_0(weight, x, out=[out.array for out in outs], device=device)
    for out in outs:
        out.assert_untouched()


@pytest.mark.parametrize("sequence", [tuple, list])
@pytest.mark.parametrize("leading", [(), (M,), (2, 3)], ids=str)
def test_two_results(
    leading: tuple[int, ...],
    sequence: type,
    device: str,
    weight: mo.Q4_0Matrix,
    weight_b: mo.Q4_0Matrix,
    rng: np.random.Generator,
) -> None:
    x = rng.standard_normal((*leading, K), np.float32)
    outs = [GuardedArray((*leading, N)) for _ in range(2)]
    arrays = sequence(out.array for out in outs)
    results = mo.fused_dual_proj_q4_0(weight, weight_b, x, out=arrays, device=device)
    expected = mo.fused_dual_proj_q4_0(weight, weight_b, x, device=device)
    for out, result, wanted in zip(outs, results, expected, strict=True):
        assert result is out.array
        out.assert_guards_untouched()
        assert_bits_equal(out.array, wanted)


@pytest.mark.parametrize("sequence", [tuple, list])
@pytest.mark.parametrize("leading", [(), (M,), (2, 3)], ids=str)
def test_three_results(
    leading: tuple[int, ...], sequence: type, device: str, rng: np.random.Generator
) -> None:
    qkv = rng.standard_normal((*leading, sum(SPANS)), np.float32)
    outs = [GuardedArray((*leading, span)) for span in SPANS]
    arrays = sequence(out.array for out in outs)
    results = mo.qkv_split(qkv, *SPANS, out=arrays, device=device)
    expected = np.split(qkv, [3, 7], axis=-1)
    for out, result, wanted in zip(outs, results, expected, strict=True):
        assert result is out.array
        out.assert_guards_untouched()
        assert_bits_equal(out.array, wanted)


def test_results_of_the_tail_stay_inside(device: str, rng: np.random.Generator) -> None:
    """N just above and below the rows of a threadgroup."""
    for rows in (1, 3, 7, 8, 9, 15, 17, 33):
        weight = mo.Q4_0Matrix.from_blocks(random_blocks(rng, rows, 32), (rows, 32))
        for m in (1, 3, 8):
            out = GuardedArray((m, rows))
            mo.mul_mv_q4_0(weight, normal_input(rng, m, 32), out=out.array, device=device)
            out.assert_guards_untouched()


def test_a_result_can_be_the_next_input(device: str, x: npt.NDArray[np.float32]) -> None:
    square = mo.Q4_0Matrix.quantize(np.eye(K, dtype=np.float32))
    first = mo.mul_mv_q4_0(square, x, device=device)
    kept = first.copy()
    second = mo.mul_mv_q4_0(square, first, device=device)
    assert_bits_equal(first, kept)
    assert_bits_equal(second, mo.mul_mv_q4_0(square, kept, device=device))


def test_results_are_ordinary_arrays_of_their_own(
    device: str, weight: mo.Q4_0Matrix, x: npt.NDArray[np.float32]
) -> None:
    results = [mo.mul_mv_q4_0(weight, x, device=device) for _ in range(3)]
    for result in results:
        assert type(result) is np.ndarray
        assert result.dtype == np.float32
        assert result.flags.carray
    kept = results[0].copy()
    results[1][:] = 0
    assert_bits_equal(results[0], kept)
    assert_bits_equal(results[2], kept)


def read_only(array: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    array.flags.writeable = False
    return array


WRONG_ARRAYS: dict[str, tuple[type[Exception], Callable[[tuple[int, ...]], Any]]] = {
    "strided": (ValueError, lambda size: np.zeros((size[0], 2 * size[1]), np.float32)[:, ::2]),
    "Fortran order": (ValueError, lambda size: np.zeros(size, np.float32, order="F")),
    "reversed": (ValueError, lambda size: np.zeros(size, np.float32)[::-1]),
    "read-only": (ValueError, lambda size: read_only(np.zeros(size, np.float32))),
    "broadcast": (ValueError, lambda size: np.broadcast_to(np.float32(0), size)),
    "too wide": (ValueError, lambda size: np.zeros((size[0], size[1] + 1), np.float32)),
    "too many rows": (ValueError, lambda size: np.zeros((size[0] + 1, size[1]), np.float32)),
    "flat": (ValueError, lambda size: np.zeros(size[0] * size[1], np.float32)),
    "transposed": (ValueError, lambda size: np.zeros(size[::-1], np.float32)),
    "one more dimension": (ValueError, lambda size: np.zeros((1, *size), np.float32)),
    "float64": (TypeError, lambda size: np.zeros(size)),
    "float16": (TypeError, lambda size: np.zeros(size, np.float16)),
    "int32": (TypeError, lambda size: np.zeros(size, np.int32)),
    "object": (TypeError, lambda size: np.zeros(size, object)),
    "byte-swapped": (TypeError, lambda size: np.zeros(size, np.dtype(np.float32).newbyteorder())),
    "masked": (TypeError, lambda size: np.ma.zeros(size, np.float32)),
    "memoryview": (TypeError, lambda size: np.zeros(size, np.float32).data),
    "text": (TypeError, lambda size: "out"),
}

wrong_arrays = pytest.mark.parametrize(
    ("exception", "make"), WRONG_ARRAYS.values(), ids=WRONG_ARRAYS
)


def contents(array: Any) -> bytes:
    """Every element, to see that none was written."""
    return np.asarray(array).tobytes()


@wrong_arrays
def test_one_array_that_cannot_take_the_result(
    exception: type[Exception],
    make: Callable[[tuple[int, ...]], Any],
    device: str,
    weight: mo.Q4_0Matrix,
    x: npt.NDArray[np.float32],
) -> None:
    wrong = make((M, N))
    before = contents(wrong)
    with pytest.raises(exception):
        mo.mul_mv_q4_0(weight, x, out=wrong, device=device)
    assert contents(wrong) == before


@wrong_arrays
@pytest.mark.parametrize("place", [0, 1])
def test_one_of_two_arrays_that_cannot_take_its_result(
    place: int,
    exception: type[Exception],
    make: Callable[[tuple[int, ...]], Any],
    device: str,
    weight: mo.Q4_0Matrix,
    x: npt.NDArray[np.float32],
) -> None:
    right, wrong = GuardedArray((M, N)), make((M, N))
    before = contents(wrong)
    out = (wrong, right.array) if place == 0 else (right.array, wrong)
    with pytest.raises(exception):
        mo.fused_dual_proj_q4_0(weight, weight, x, out=out, device=device)
    right.assert_untouched()
    assert contents(wrong) == before


@wrong_arrays
@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_of_three_arrays_that_cannot_take_its_result(
    place: int,
    exception: type[Exception],
    make: Callable[[tuple[int, ...]], Any],
    device: str,
    qkv: npt.NDArray[np.float32],
) -> None:
    right = [GuardedArray((M, span)) for span in SPANS]
    wrong = make((M, SPANS[place]))
    before = contents(wrong)
    out = [guarded.array for guarded in right]
    out[place] = wrong
    with pytest.raises(exception):
        mo.qkv_split(qkv, *SPANS, out=(out[0], out[1], out[2]), device=device)
    for guarded in right:
        guarded.assert_untouched()
    assert contents(wrong) == before


def test_the_message_names_both_shapes(
    device: str, weight: mo.Q4_0Matrix, x: npt.NDArray[np.float32]
) -> None:
    with raises(ValueError, shape((M, N + 1)), shape((M, N))):
        mo.mul_mv_q4_0(weight, x, out=np.zeros((M, N + 1), np.float32), device=device)


def test_the_message_names_the_type(
    device: str, weight: mo.Q4_0Matrix, x: npt.NDArray[np.float32]
) -> None:
    wrong: Any = np.zeros((M, N))
    with raises(TypeError, word("float64"), word("float32")):
        mo.mul_mv_q4_0(weight, x, out=wrong, device=device)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_not_one_array_per_result_of_a_dual_projection(
    count: int, device: str, weight: mo.Q4_0Matrix, x: npt.NDArray[np.float32]
) -> None:
    outs = [GuardedArray((M, N)) for _ in range(count)]
    wrong: Any = tuple(out.array for out in outs)
    with raises(ValueError, r"\b(2|two)\b"):
        mo.fused_dual_proj_q4_0(weight, weight, x, out=wrong, device=device)
    for out in outs:
        out.assert_untouched()


@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_not_one_array_per_result_of_a_split(
    count: int, device: str, qkv: npt.NDArray[np.float32]
) -> None:
    outs = [GuardedArray((M, span)) for span in (*SPANS, 1)[:count]]
    wrong: Any = tuple(out.array for out in outs)
    with raises(ValueError, r"\b(3|three)\b"):
        mo.qkv_split(qkv, *SPANS, out=wrong, device=device)
    for out in outs:
        out.assert_untouched()


@pytest.mark.parametrize("wrong", [np.zeros((2, M, N), np.float32), 3, "ab", {}], ids=type)
def test_no_sequence_of_arrays(
    wrong: Any, device: str, weight: mo.Q4_0Matrix, x: npt.NDArray[np.float32]
) -> None:
    with pytest.raises((TypeError, ValueError)):
        mo.fused_dual_proj_q4_0(weight, weight, x, out=wrong, device=device)


def overlapping(size_a: int, size_b: int, shared: int) -> list[npt.NDArray[np.float32]]:
    """Two arrays in one buffer of which the first one's last elements are the second's first."""
    buffer = np.arange(size_a + size_b - shared, dtype=np.float32)
    return [buffer[:size_a], buffer[size_a - shared :]]


@pytest.mark.parametrize("shared", [1, 7, M * N])
def test_overlapping_results_of_a_dual_projection(
    shared: int, device: str, weight: mo.Q4_0Matrix, x: npt.NDArray[np.float32]
) -> None:
    a, b = (array.reshape(M, N) for array in overlapping(M * N, M * N, shared))
    before = (a.copy(), b.copy())
    for out in [(a, b), (b, a)]:
        with raises(ValueError, "overlap"):
            mo.fused_dual_proj_q4_0(weight, weight, x, out=out, device=device)
    assert_bits_equal(a, before[0])
    assert_bits_equal(b, before[1])


@pytest.mark.parametrize("pair", [(0, 1), (0, 2), (1, 2)])
def test_overlapping_results_of_a_split(
    pair: tuple[int, int], device: str, qkv: npt.NDArray[np.float32]
) -> None:
    outs = [np.zeros((M, span), np.float32) for span in SPANS]
    first, second = pair
    arrays = overlapping(outs[first].size, outs[second].size, 1)
    outs[first], outs[second] = arrays[0].reshape(M, -1), arrays[1].reshape(M, -1)
    before = [out.copy() for out in outs]
    with raises(ValueError, "overlap"):
        mo.qkv_split(qkv, *SPANS, out=(outs[0], outs[1], outs[2]), device=device)
    for out, kept in zip(outs, before, strict=True):
        assert_bits_equal(out, kept)


def test_results_side_by_side_in_one_buffer(
    device: str, weight: mo.Q4_0Matrix, weight_b: mo.Q4_0Matrix, x: npt.NDArray[np.float32]
) -> None:
    both = np.zeros((2, M, N), np.float32)
    mo.fused_dual_proj_q4_0(weight, weight_b, x, out=(both[0], both[1]), device=device)
    expected = mo.fused_dual_proj_q4_0(weight, weight_b, x, device=device)
    assert_bits_equal(both, np.stack(expected))


def last_element_shared(
    values: npt.NDArray[np.float32], view: Callable[[npt.NDArray[Any]], npt.NDArray[Any]], size: int
) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
    """An input with these values, and an array of ``size`` floats that begins in the input's end.

    ``view`` picks the input out of a buffer.
    """
    buffer = np.zeros(2 * values.size + size, np.float32)
    source = view(buffer)
    source[...] = values
    steps = zip(source.shape, source.strides, strict=True)
    last = source.ctypes.data + sum((n - 1) * max(0, stride) for n, stride in steps)
    start = (last - buffer.ctypes.data) // buffer.itemsize
    return source, buffer[start : start + size]


INPUT_VIEWS: dict[str, Callable[[npt.NDArray[Any]], npt.NDArray[Any]]] = {
    "contiguous": lambda buffer: buffer[: M * K].reshape(M, K),
    "strided": lambda buffer: buffer[: 2 * M * K].reshape(M, 2 * K)[:, 1::2],
    "reversed": lambda buffer: buffer[: M * K].reshape(M, K)[::-1, ::-1],
    "Fortran order": lambda buffer: buffer[: M * K].reshape(K, M).T,
    "byte-swapped": lambda buffer: buffer[: M * K].view(">f4").reshape(M, K),
    "float16": lambda buffer: buffer.view(np.float16)[: M * K].reshape(M, K),
}


@pytest.mark.parametrize("view", INPUT_VIEWS.values(), ids=INPUT_VIEWS)
def test_a_result_that_overlaps_x(
    view: Callable[[npt.NDArray[Any]], npt.NDArray[Any]],
    device: str,
    weight: mo.Q4_0Matrix,
    x: npt.NDArray[np.float32],
) -> None:
    source, flat = last_element_shared(x, view, M * N)
    out = flat.reshape(M, N)
    assert np.shares_memory(source, out)
    before = out.tobytes()
    with raises(ValueError, "overlap"):
        mo.mul_mv_q4_0(weight, source, out=out, device=device)
    for pair in [(out, np.zeros_like(out)), (np.zeros_like(out), out)]:
        with raises(ValueError, "overlap"):
            mo.fused_dual_proj_q4_0(weight, weight, source, out=pair, device=device)
    assert out.tobytes() == before


@pytest.mark.parametrize(
    "foreign",
    [lambda array: array.data, ArrayInterface, DLPackArray],
    ids=["buffer", "__array_interface__", "DLPack"],
)
def test_a_result_that_overlaps_a_foreign_array(
    foreign: Callable[[npt.NDArray[Any]], Any], device: str, weight: mo.Q4_0Matrix
) -> None:
    buffer = np.arange(M * K + M * N - 1, dtype=np.float32)
    before = buffer.copy()
    source = foreign(buffer[: M * K].reshape(M, K))
    out = buffer[M * K - 1 :].reshape(M, N)
    with raises(ValueError, "overlap"):
        mo.mul_mv_q4_0(weight, source, out=out, device=device)
    assert_bits_equal(buffer, before)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_result_that_overlaps_qkv(place: int, device: str) -> None:
    buffer = np.arange(100, dtype=np.float32)
    qkv = buffer[: M * sum(SPANS)].reshape(M, -1)
    outs = [np.zeros((M, span), np.float32) for span in SPANS]
    outs[place] = buffer[qkv.size - 1 :][: outs[place].size].reshape(M, -1)
    before = buffer.copy()
    with raises(ValueError, "overlap"):
        mo.qkv_split(qkv, *SPANS, out=(outs[0], outs[1], outs[2]), device=device)
    assert_bits_equal(buffer, before)


def test_a_split_in_place(device: str) -> None:
    """Written over its own input by views of it, as one might wish to."""
    qkv = np.arange(13, dtype=np.float32)
    before = qkv.copy()
    with raises(ValueError, "overlap"):
        mo.qkv_split(qkv, *SPANS, out=(qkv[:3], qkv[3:7], qkv[7:]), device=device)
    assert_bits_equal(qkv, before)


def test_an_input_right_beside_the_result(
    device: str, weight: mo.Q4_0Matrix, x: npt.NDArray[np.float32]
) -> None:
    buffer = np.zeros(M * K + M * N, np.float32)
    source = buffer[: M * K].reshape(M, K)
    source[:] = x
    out = buffer[M * K :].reshape(M, N)
    mo.mul_mv_q4_0(weight, source, out=out, device=device)
    assert_bits_equal(source, x)
    assert_bits_equal(out, mo.mul_mv_q4_0(weight, x, device=device))


def test_an_out_of_a_subclass(
    device: str, weight: mo.Q4_0Matrix, x: npt.NDArray[np.float32], tmp_path: Any
) -> None:
    """A memory-mapped file takes the result."""
    file = tmp_path / "result"
    out = np.memmap(file, np.float32, "w+", shape=(M, N))
    assert mo.mul_mv_q4_0(weight, x, out=out, device=device) is out
    out.flush()
    stored = np.fromfile(file, np.float32).reshape(M, N)
    assert_bits_equal(stored, mo.mul_mv_q4_0(weight, x, device=device))
