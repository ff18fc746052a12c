"""Arrays in memory that every device uses as it is: none of them is copied."""

from __future__ import annotations

import gc
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import mlxops as mo
from mlxops import _core
from mlxops.testing import assert_bits_equal
from q4_0_data import normal_input, random_blocks

Float32 = npt.NDArray[np.float32]

N, K = 32, 64

# A GPU with memory of its own moves everything.
shares_memory = pytest.mark.skipif(
    mo.devices()[0].name == "cuda", reason="this GPU has memory of its own"
)


@pytest.fixture
def weight(rng: np.random.Generator) -> mo.Q4_0Matrix:
    return mo.Q4_0Matrix.from_blocks(random_blocks(rng, N, K), (N, K))


def copied_by(call: Any) -> tuple[int, int]:
    """The bytes that a call copies."""
    before = mo.copies()
    call()
    after = mo.copies()
    return after.bytes_in - before.bytes_in, after.bytes_out - before.bytes_out


def test_empty_makes_ordinary_arrays() -> None:
    shapes: list[Any] = [5, (2, 3), [4], (), (0, 3), np.int64(2), (1,) * 32]
    for shape in shapes:
        array = mo.empty(shape)
        expected = np.empty(shape, np.float32)
        assert type(array) is np.ndarray
        assert (array.shape, array.dtype) == (expected.shape, expected.dtype)
        assert array.flags.carray
        assert not array.flags.owndata
        array[...] = 1
        assert (array == 1).all()


@pytest.mark.parametrize(
    ("shape", "error", "match"),
    [
        (-1, ValueError, "negative"),
        ((3, -1, 0), ValueError, "negative"),
        ((2**31, 2**31), ValueError, "size in bytes overflows"),
        ((2**62, 0, 2), ValueError, "size in bytes overflows"),
        (2**61 - 1, MemoryError, "."),
        (2**70, (ValueError, OverflowError), "."),
        ("ab", TypeError, "."),
        (1.5, TypeError, "."),
        (None, TypeError, "."),
    ],
)
def test_shapes_that_cannot_be(shape: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        mo.empty(shape)


def test_results_lie_in_shared_memory(weight: mo.Q4_0Matrix, device: str) -> None:
    result = mo.mul_mv_q4_0(weight, np.ones(K, np.float32), device=device)
    assert _core.is_shared(result)
    assert _core.is_shared(result[3:])
    assert _core.is_shared(result.reshape(4, 8)[1:, :2].T)
    assert _core.is_shared(result[3:4].view(np.int32))
    assert not _core.is_shared(result.copy())
    assert not _core.is_shared(np.ones(3, np.float32))
    assert not _core.is_shared([1.0])


@shares_memory
def test_shared_arrays_are_not_copied(weight: mo.Q4_0Matrix, device: str) -> None:
    x, out = mo.empty((5, K)), mo.empty((8, N))
    x[:] = 1
    for m, operand in ((5, x), (2, x[1:3]), (1, x[4])):
        target = out[2 : 2 + m] if operand.ndim == 2 else out[7]
        assert copied_by(lambda o=operand: mo.mul_mv_q4_0(weight, o, device=device)) == (0, 0)
        assert copied_by(
            lambda o=operand, t=target: mo.mul_mv_q4_0(weight, o, out=t, device=device)
        ) == (0, 0)
    y = mo.mul_mv_q4_0(weight, x, device=device)
    assert copied_by(lambda: mo.qkv_split(y, 8, 8, 16, device=device)) == (0, 0)


@shares_memory
def test_slices_give_the_same_bits(
    weight: mo.Q4_0Matrix, device: str, rng: np.random.Generator
) -> None:
    """Also where they do not begin at a multiple of 16 bytes."""
    memory = mo.empty(3 * K + 9)
    for offset in range(8):
        x = memory[offset : offset + 3 * K].reshape(3, K)
        x[:] = normal_input(rng, 3, K)
        expected = mo.mul_mv_q4_0(weight, x.copy(), device="cpu")
        assert_bits_equal(mo.mul_mv_q4_0(weight, x, device=device), expected)
        parts = mo.qkv_split(x, 16, 16, 32, device=device)
        assert_bits_equal(np.concatenate(parts, axis=1), x)
    results = mo.empty(3 * N + 9)
    for offset in range(8):
        out = results[offset : offset + 3 * N].reshape(3, N)
        results[:] = 7
        mo.mul_mv_q4_0(weight, x, out=out, device=device)
        assert_bits_equal(out, expected)
        assert (results[:offset] == 7).all()
        assert (results[offset + 3 * N :] == 7).all()


def test_what_is_copied_is_counted(weight: mo.Q4_0Matrix) -> None:
    x = np.ones((5, K), np.float32)
    half, strided, bare = x.astype(np.float16), np.ones((5, 2 * K), np.float32)[:, ::2], x.tolist()
    assert copied_by(lambda: mo.mul_mv_q4_0(weight, x, device="cpu")) == (0, 0)
    for other in (half, strided, bare):
        assert copied_by(lambda o=other: mo.mul_mv_q4_0(weight, o, device="cpu")) == (x.nbytes, 0)


def test_copies_into_and_out_of_an_encoder(weight: mo.Q4_0Matrix) -> None:
    x, own = np.ones((5, K), np.float32), mo.asarray(np.ones((5, K), np.float32))

    def record(operand: Float32) -> None:
        with mo.Encoder("cpu") as enc:
            enc.mul_mv_q4_0(weight, enc.mul_mv_q4_0(weight, operand).reshape(-1, K)[:1])

    assert copied_by(lambda: record(x[:4])) == (4 * K * 4, 0)
    assert copied_by(lambda: record(own[:4])) == (0, 0)


def test_arrays_are_valid_as_long_as_anything_refers_to_them() -> None:
    array = mo.empty(1000)
    array[:] = 3
    view = memoryview(array[10:])  # type: ignore[arg-type]
    del array
    gc.collect()
    mo.clear_cache()
    others = [mo.empty(1000) for _ in range(4)]
    for other in others:
        other[:] = 0
    assert all(value == 3 for value in view)
    before = mo.cache_info().nbytes
    del view
    assert mo.cache_info().nbytes > before


def test_asarray(rng: np.random.Generator) -> None:
    plain = normal_input(rng, 3, 8)
    shared = mo.asarray(plain)
    assert _core.is_shared(shared)
    assert_bits_equal(shared, plain)
    assert mo.asarray(shared) is shared
    assert copied_by(lambda: mo.asarray(shared)) == (0, 0)
    assert copied_by(lambda: mo.asarray(plain)) == (plain.nbytes, 0)
    for other in (plain.astype(np.float16), plain[::-1], plain.astype(">f4"), plain.tolist()):
        assert_bits_equal(mo.asarray(other), np.asarray(other, np.float32))
    backwards = shared[::-1]
    assert not np.may_share_memory(mo.asarray(backwards), shared)
    read_only = shared.view()
    read_only.flags.writeable = False
    assert mo.asarray(read_only).flags.writeable
    with pytest.raises(TypeError, match="float64"):
        mo.asarray(np.ones(3))
    assert mo.asarray(np.empty((0, 3), np.float32)).shape == (0, 3)


def test_nothing_leaks() -> None:
    array = mo.empty(3)
    references = sys.getrefcount(array)
    for _ in range(3):
        mo.asarray(array)
        _core.is_shared(array)
    assert sys.getrefcount(array) == references
