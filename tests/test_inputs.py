"""Inputs of every layout and from every library give the results of a contiguous float32 array."""

import array
import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import mlxops as mo
from foreign_arrays import (
    ArrayInterface,
    ArrayInterfaceBeforeDLPack,
    DLPackArray,
    OldDLPackArray,
)
from mlxops.testing import assert_bits_equal
from q4_0_data import random_blocks
from raising import raises, word

M, N, K = 5, 33, 96
SPANS = (30, 2, 64)

Values = npt.NDArray[np.float32]


class Subclass(np.ndarray[Any, Any]):
    """An array that is not quite an ndarray."""


def read_only(values: Values) -> Values:
    values = values.copy()
    values.flags.writeable = False
    return values


def memory_mapped(values: Values, directory: Path) -> Values:
    file = directory / "values"
    values.tofile(file)
    return np.memmap(file, np.float32, "r", shape=values.shape)


def at_odd_address(values: Values, dtype: str = "f4") -> npt.NDArray[Any]:
    data = b"\0" + values.astype(dtype).tobytes()
    unaligned = np.frombuffer(data, dtype, offset=1).reshape(values.shape)
    assert not unaligned.flags.aligned
    return unaligned


def in_a_record(values: Values) -> npt.NDArray[Any]:
    """A field of records with one byte before it: strided and unaligned."""
    records = np.zeros(values.shape, [("flag", "i1"), ("value", "f4")])
    records["value"] = values
    return records["value"]


def ctypes_array(values: Values) -> Any:
    rows = ((ctypes.c_float * values.shape[1]) * values.shape[0])()
    np.ctypeslib.as_array(rows)[:] = values
    return rows


def torch_tensor(values: Values) -> Any:
    return pytest.importorskip("torch").from_numpy(values.copy())


def mlx_array(values: Values) -> Any:
    return pytest.importorskip("mlx.core").array(values)


# What is made of a float32 matrix [M, K]; its values are exact in float16.
FORMS: dict[str, Callable[[Values, Path], Any]] = {
    "contiguous": lambda values, _: values.copy(),
    "strided columns": lambda values, _: values.repeat(2, axis=1)[:, ::2],
    "strided rows": lambda values, _: values.repeat(3, axis=0)[1::3],
    "columns of a wider array": lambda values, _: np.pad(values, ((0, 0), (3, 4)))[:, 3:-4],
    "reversed": lambda values, _: values[::-1, ::-1].copy()[::-1, ::-1],
    "reversed rows": lambda values, _: values[::-1].copy()[::-1],
    "Fortran order": lambda values, _: np.asfortranarray(values),
    "byte-swapped": lambda values, _: values.astype(np.dtype("f4").newbyteorder()),
    "float16": lambda values, _: values.astype(np.float16),
    "float16 strided": lambda values, _: values.astype(np.float16).repeat(2, axis=1)[:, ::2],
    "float16 byte-swapped": lambda values, _: values.astype(np.dtype("f2").newbyteorder()),
    "read-only": lambda values, _: read_only(values),
    "memory-mapped": memory_mapped,
    "unaligned": lambda values, _: at_odd_address(values),
    "unaligned byte-swapped": lambda values, _: at_odd_address(values, ">f4"),
    "unaligned float16": lambda values, _: at_odd_address(values, "f2"),
    "field of a record": lambda values, _: in_a_record(values),
    "subclass": lambda values, _: values.copy().view(Subclass),
    "matrix": lambda values, _: values.copy().view(np.matrix),
    "nested lists": lambda values, _: values.tolist(),
    "nested tuples": lambda values, _: tuple(map(tuple, values.tolist())),
    "memoryview": lambda values, _: values.copy().data,
    "read-only memoryview": lambda values, _: values.copy().data.toreadonly(),
    "strided memoryview": lambda values, _: values.repeat(3, axis=0).data[::3],
    "ctypes array": lambda values, _: ctypes_array(values),
    "__array_interface__": lambda values, _: ArrayInterface(values.copy()),
    "__array_interface__ of a view": lambda values, _: ArrayInterface(values[::-1].copy()[::-1]),
    "__array_interface__ first": lambda values, _: ArrayInterfaceBeforeDLPack(values.copy()),
    "DLPack": lambda values, _: DLPackArray(values.copy()),
    "DLPack strided": lambda values, _: DLPackArray(values.repeat(2, axis=1)[:, ::2]),
    "DLPack float16": lambda values, _: DLPackArray(values.astype(np.float16)),
    "DLPack of an older version": lambda values, _: OldDLPackArray(values.copy()),
    "mlx": lambda values, _: mlx_array(values),
    "mlx float16": lambda values, _: mlx_array(values).astype(
        pytest.importorskip("mlx.core").float16
    ),
    "mlx transposed": lambda values, _: mlx_array(values.T).T,
    "torch": lambda values, _: torch_tensor(values),
    "torch float16": lambda values, _: torch_tensor(values).half(),
    "torch transposed": lambda values, _: torch_tensor(values.T).T,
    "torch strided": lambda values, _: torch_tensor(values.repeat(2, axis=1))[:, ::2],
    "torch parameter without gradient": lambda values, _: torch_tensor(values).requires_grad_(
        False
    ),
}

every_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def contents(source: Any) -> bytes:
    """The values of an input, to see that they were not modified."""
    return np.asarray(getattr(source, "array", source)).tobytes()


@pytest.fixture
def weight(rng: np.random.Generator) -> mo.Q4_0Matrix:
    return mo.Q4_0Matrix.from_blocks(random_blocks(rng, N, K), (N, K))


@pytest.fixture
def weight_b(rng: np.random.Generator) -> mo.Q4_0Matrix:
    return mo.Q4_0Matrix.from_blocks(random_blocks(rng, N, K), (N, K))


@pytest.fixture
def values(rng: np.random.Generator) -> Values:
    return rng.standard_normal((M, K)).astype(np.float16).astype(np.float32)


@every_form
def test_one_projection(
    form: Callable[[Values, Path], Any],
    device: str,
    weight: mo.Q4_0Matrix,
    values: Values,
    tmp_path: Path,
) -> None:
    x = form(values, tmp_path)
    before = contents(x)
    result = mo.mul_mv_q4_0(weight, x, device=device)
    assert type(result) is np.ndarray
    assert_bits_equal(result, mo.mul_mv_q4_0(weight, values, device=device))
    assert contents(x) == before


@every_form
def test_two_projections(
    form: Callable[[Values, Path], Any],
    device: str,
    weight: mo.Q4_0Matrix,
    weight_b: mo.Q4_0Matrix,
    values: Values,
    tmp_path: Path,
) -> None:
    x = form(values, tmp_path)
    before = contents(x)
    results = mo.fused_dual_proj_q4_0(weight, weight_b, x, device=device)
    expected = mo.fused_dual_proj_q4_0(weight, weight_b, values, device=device)
    for result, wanted in zip(results, expected, strict=True):
        assert type(result) is np.ndarray
        assert_bits_equal(result, wanted)
    assert contents(x) == before


@every_form
def test_a_split(
    form: Callable[[Values, Path], Any], device: str, values: Values, tmp_path: Path
) -> None:
    qkv = form(values, tmp_path)
    before = contents(qkv)
    results = mo.qkv_split(qkv, *SPANS, device=device)
    for result, wanted in zip(results, np.split(values, [30, 32], axis=1), strict=True):
        assert type(result) is np.ndarray
        assert_bits_equal(result, wanted)
    assert contents(qkv) == before


def test_the_same_row_many_times(device: str, weight: mo.Q4_0Matrix, values: Values) -> None:
    x = np.broadcast_to(values[0], (7, K))
    expected = np.broadcast_to(mo.mul_mv_q4_0(weight, values[0], device=device), (7, N))
    assert_bits_equal(mo.mul_mv_q4_0(weight, x, device=device), expected)
    column = np.broadcast_to(values[:, :1], (M, K))
    assert_bits_equal(
        mo.mul_mv_q4_0(weight, column, device=device),
        mo.mul_mv_q4_0(weight, column.copy(), device=device),
    )


def test_a_vector_gives_a_vector(
    device: str, weight: mo.Q4_0Matrix, weight_b: mo.Q4_0Matrix, values: Values
) -> None:
    for result in (
        mo.mul_mv_q4_0(weight, values[0], device=device),
        *mo.fused_dual_proj_q4_0(weight, weight_b, values[0], device=device),
    ):
        assert result.shape == (N,)


@pytest.mark.parametrize("leading", [(1,), (2, 3), (3, 1, 2), (1, 1, 1, 1)], ids=str)
def test_leading_dimensions_are_kept(
    leading: tuple[int, ...],
    device: str,
    weight: mo.Q4_0Matrix,
    weight_b: mo.Q4_0Matrix,
    rng: np.random.Generator,
) -> None:
    x = rng.standard_normal((*leading, K), np.float32)
    flat = x.reshape(-1, K)
    results = [
        mo.mul_mv_q4_0(weight, x, device=device),
        *mo.fused_dual_proj_q4_0(weight, weight_b, x, device=device),
    ]
    expected = [
        mo.mul_mv_q4_0(weight, flat, device=device),
        *mo.fused_dual_proj_q4_0(weight, weight_b, flat, device=device),
    ]
    for result, wanted in zip(results, expected, strict=True):
        assert_bits_equal(result, wanted.reshape(*leading, N))


def test_an_array_of_the_standard_library(
    device: str, weight: mo.Q4_0Matrix, values: Values
) -> None:
    x = array.array("f", values[0].tolist())
    assert_bits_equal(
        mo.mul_mv_q4_0(weight, x, device=device), mo.mul_mv_q4_0(weight, values[0], device=device)
    )
    for code, name in [("d", "float64"), ("i", "int32")]:
        wrong: Any = array.array(code, [0] * K)
        with raises(TypeError, word(name), "float32"):
            mo.mul_mv_q4_0(weight, wrong, device=device)


@pytest.mark.usefixtures("keeps_subnormals")
def test_special_values_survive_every_conversion(device: str) -> None:
    """-0, infinities, NaN and subnormals, as float16 and with the bytes swapped."""
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 2.0**-24, -(2.0**-20), 65504], "f2")
    wanted = special.astype(np.float32)
    for dtype in ("<f2", ">f2", "<f4", ">f4"):
        parts = mo.qkv_split(special.astype(dtype), 1, 2, 5, device=device)
        assert_bits_equal(np.concatenate(parts), wanted)


def test_float64_from_dlpack_is_refused(device: str, weight: mo.Q4_0Matrix) -> None:
    wrong: Any = DLPackArray(np.zeros((M, K)))
    with raises(TypeError, word("float64"), "float32"):
        mo.mul_mv_q4_0(weight, wrong, device=device)


def test_what_torch_does_not_hand_out(device: str, weight: mo.Q4_0Matrix) -> None:
    torch = pytest.importorskip("torch")
    with raises(TypeError, r"detach\(\)"):
        mo.mul_mv_q4_0(weight, torch.zeros(M, K, requires_grad=True), device=device)
    with raises(TypeError, "bfloat16", "float"):
        mo.mul_mv_q4_0(weight, torch.zeros(M, K, dtype=torch.bfloat16), device=device)
    with raises(TypeError, word("float64"), "float"):
        mo.mul_mv_q4_0(weight, torch.zeros(M, K, dtype=torch.float64), device=device)
