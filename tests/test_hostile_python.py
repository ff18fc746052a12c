"""Objects that lie about themselves, or change what they were while a call looks at them."""

import gc
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fresh_python
import mlxops as mo
from raising import raises

WEIGHT = mo.Q4_0Matrix.quantize(np.ones((64, 32), np.float32))
X = np.ones((3, 32), np.float32)


class BoastfulArray(np.ndarray[Any, Any]):
    """Says that it is all that an output must be."""

    @property
    def flags(self) -> Any:
        return types.SimpleNamespace(writeable=True, c_contiguous=True, aligned=True)

    @property
    def dtype(self) -> Any:
        return np.dtype(np.float32)


def read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


LIARS: dict[str, Callable[[], np.ndarray]] = {
    "reversed": lambda: np.zeros((3, 64), np.float32)[::-1],
    "strided": lambda: np.zeros((3, 128), np.float32)[:, ::2],
    "read-only": lambda: read_only(np.zeros((3, 64), np.float32)),
    "int32": lambda: np.zeros((3, 64), np.int32),
    "float64": lambda: np.zeros((3, 64), np.float64),
}


@pytest.mark.parametrize("kind", LIARS)
def test_an_output_is_believed_by_its_memory_alone(kind: str, device: str) -> None:
    array = LIARS[kind]()
    before = array.copy()
    with raises((TypeError, ValueError), "out"):
        mo.mul_mv_q4_0(WEIGHT, X, out=array.view(BoastfulArray), device=device)
    np.testing.assert_array_equal(array, before)


def test_an_input_is_believed_by_its_memory_alone(device: str) -> None:
    x = np.arange(64, dtype=np.float32).reshape(32, 2).T
    expected = mo.mul_mv_q4_0(WEIGHT, x.copy(), device=device)
    lying = x.view(BoastfulArray)
    np.testing.assert_array_equal(mo.mul_mv_q4_0(WEIGHT, lying, device=device), expected)


@pytest.mark.parametrize("change", ["smaller", "read-only"])
def test_an_output_that_changes_while_the_input_is_read(change: str, device: str) -> None:
    out, source = np.zeros((3, 64), np.float32), X.copy()

    class Changing:
        @property
        def __array_interface__(self) -> dict[str, Any]:
            if change == "smaller":
                out.resize((1,), refcheck=False)
            else:
                out.flags.writeable = False
            interface: dict[str, Any] = source.__array_interface__
            return interface

    with raises(ValueError, "out"):
        mo.mul_mv_q4_0(WEIGHT, Changing(), out=out, device=device)
    assert not out.any()


def test_no_reference_is_left_over_after_an_error(device: str) -> None:
    out = np.zeros((3, 64), np.float32)
    no_outputs: Any = [out, 3]
    calls: list[Callable[[], object]] = [
        lambda: mo.mul_mv_q4_0(WEIGHT, X, out=[out, out], device=device),
        lambda: mo.mul_mv_q4_0(WEIGHT, X[:, :5], out=out, device=device),
        lambda: mo.mul_mv_q4_0(WEIGHT, object(), out=out, device=device),  # type: ignore[arg-type]
        lambda: mo.fused_dual_proj_q4_0(WEIGHT, WEIGHT, X, out=[out, out], device=device),
        lambda: mo.fused_dual_proj_q4_0(WEIGHT, WEIGHT, X, out=no_outputs, device=device),
    ]
    gc.collect()
    before = sys.getrefcount(out), sys.getrefcount(WEIGHT), sys.getrefcount(X)
    for call in calls:
        for _ in range(10):
            with pytest.raises((TypeError, ValueError)):
                call()
    assert (sys.getrefcount(out), sys.getrefcount(WEIGHT), sys.getrefcount(X)) == before


LEAVES: dict[str, Any] = {
    "float64 array": np.ones(32),
    "int64 array": np.ones(32, np.int64),
    "longdouble array": np.ones(32, np.longdouble),
    "bool array": np.ones(32, bool),
    "masked array": np.ma.masked_array(np.ones(32, np.float32), True),
    "float64 scalars": [np.float64(1)] * 32,
    "bools": [True] * 32,
    "mixed bools": [1.0] * 31 + [True],
    "texts": ["1"] * 32,
    "complex numbers": [1j] * 32,
    "None": [None] * 32,
}


@pytest.mark.parametrize("leaf", LEAVES)
def test_lists_do_not_hide_a_wrong_type(leaf: str, device: str) -> None:
    with raises(TypeError, "an element of x"):
        mo.mul_mv_q4_0(WEIGHT, [LEAVES[leaf]], device=device)


@pytest.mark.parametrize(
    "leaf", [[1.0] * 32, [1] * 32, X[0], X[0].astype(np.float16), list(X[0]), (1.0,) * 32]
)
def test_lists_of_numbers_and_float32(leaf: Any, device: str) -> None:
    expected = mo.mul_mv_q4_0(WEIGHT, X[:2], device=device)
    np.testing.assert_array_equal(mo.mul_mv_q4_0(WEIGHT, [leaf, leaf], device=device), expected)


class OddDLPack:
    """Forwards what a case wants of the DLPack protocol."""

    def __init__(self, device: Any, capsule: Any = None) -> None:
        self._device, self._capsule = device, capsule

    def __dlpack_device__(self) -> Any:
        return self._device

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule


@pytest.mark.parametrize("described", [None, (), ("cpu", 0), (1, 0), 1])
def test_a_dlpack_that_makes_no_sense(described: Any, device: str) -> None:
    with raises(TypeError, "x is a ", "OddDLPack"):
        mo.mul_mv_q4_0(WEIGHT, OddDLPack(described), device=device)


@pytest.mark.parametrize("name", ["q_sp", "k_sp", "v_sp", "n_k_heads", "d_k", "n_v_heads", "d_v"])
def test_numbers_that_are_none_are_named(name: str) -> None:
    given: dict[str, Any] = {"q_sp": 1, "k_sp": 1, "v_sp": 1}
    if name not in given:
        given = {"n_k_heads": 1, "d_k": 1, "n_v_heads": 1, "d_v": 1}
    with raises(TypeError, name, "float"):
        mo.qkv_split(np.zeros(3, np.float32), **{**given, name: 1.0})


@pytest.mark.parametrize("value", ["\udcff", "a" * 63 + "é"])
def test_an_environment_that_is_no_utf8_is_a_warning(value: str) -> None:
    code = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import mlxops as mo
print(len(caught), caught[0].category.__name__, mo.get_num_threads() >= 1)
"""
    printed = fresh_python.run(code, MLXOPS_NUM_THREADS=value)
    assert printed.split() == ["1", "RuntimeWarning", "True"]


def test_a_full_cache_makes_room(device: str) -> None:
    """Freed memory of one size does not shut out that of others."""
    mo.clear_cache()
    limit = mo.cache_info().limit
    size = limit // 8
    held = [mo.Q4_0Matrix.from_blocks(bytes(18 * (size // 18)), (size // 18, 32)) for _ in range(7)]
    del held
    full = mo.cache_info().nbytes
    assert full > limit // 2
    other = mo.Q4_0Matrix.from_blocks(bytes(18 * (2 * size // 18)), (2 * size // 18, 32))
    del other
    assert 2 * size <= mo.cache_info().nbytes <= limit
    mo.clear_cache()
