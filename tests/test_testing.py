"""The helpers for users' own numerical comparisons: what they let through, and what they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlxops as mo
from mlxops.testing import assert_bits_equal, assert_within_bound, error_bound
from q4_0_data import normal_input, random_blocks

FLOATS = [np.float16, np.float32, np.float64]


def refusal(actual: Any, expected: Any, **options: bool) -> str:
    """What assert_bits_equal says of two arrays."""
    with pytest.raises(AssertionError) as caught:
        assert_bits_equal(actual, expected, **options)
    return str(caught.value)


@pytest.mark.parametrize("dtype", FLOATS)
def test_equal_bits(dtype: Any) -> None:
    array = np.array([[0.0, -0.0, 1.5], [np.inf, np.nan, 1e-7]], dtype)
    assert_bits_equal(array, array.copy())
    assert_bits_equal(array.T, array.copy().T)
    assert_bits_equal(array[::-1], array[::-1].copy())
    assert_bits_equal(array[0, 2], dtype(1.5))
    assert_bits_equal(array[:, :0], array[:, :0])


def test_the_first_difference() -> None:
    expected = np.ones((2, 3), np.float32)
    actual = expected.copy()
    actual[1, 1] = np.nextafter(np.float32(1), np.float32(2))
    actual[1, 2] = 7
    said = refusal(actual, expected)
    assert said.startswith("2 of 6 elements of shape (2, 3) differ, first at (1, 1): ")
    assert "(0x3f800001) instead of " in said
    assert said.endswith("(0x3f800000), 1 ulp apart")


@pytest.mark.parametrize(
    ("a", "b", "distance"),
    [
        (0.0, -0.0, "0 ulp apart"),
        (1e-45, -1e-45, "2 ulp apart"),
        (1.0, -1.0, f"{2 * 0x3F800000} ulp apart"),
        (np.inf, np.finfo(np.float32).max, "1 ulp apart"),
        (np.nan, 1.0, "of which one is NaN"),
        (1.0, np.nan, "of which one is NaN"),
    ],
)
def test_distances(a: float, b: float, distance: str) -> None:
    assert refusal(np.float32(a), np.float32(b)).endswith(distance)


def test_bit_patterns_have_the_width_of_the_type() -> None:
    assert "(0x3c00) instead of np.float16(2.0) (0x4000), 1024 ulp" in refusal(
        np.ones(1, np.float16), np.full(1, 2, np.float16)
    ).replace("of 2.0", "of np.float16(2.0)")
    assert "(0x3ff0000000000000)" in refusal(np.ones(1), np.zeros(1))


def test_nans() -> None:
    quiet, other = np.array([0x7FC00000, 0xFFC12345], np.uint32).view(np.float32)[:, None]
    assert_bits_equal(quiet, other)
    assert refusal(quiet, other, nans_are_one=False).endswith("NaNs with other payloads")
    assert_bits_equal(quiet, quiet.copy(), nans_are_one=False)


def test_byte_order_is_not_a_difference_of_bits() -> None:
    array = np.array([1.5, -2.25], np.float32)
    with pytest.raises(AssertionError, match="dtype >f4 instead of float32"):
        assert_bits_equal(array.astype(">f4"), array)
    assert_bits_equal(array.astype(">f4"), array.astype(">f4"))


def test_dtypes_and_shapes() -> None:
    ones = np.ones(3, np.float32)
    assert "dtype float32 instead of float64" in refusal(ones, np.ones(3))
    assert "both must be one float dtype" in refusal(np.ones(3, int), np.ones(3, int))
    assert "shape (3,) instead of (1, 3)" in refusal(ones, ones[None])
    assert "shape (3,) instead of (2,)" in refusal(ones, ones[:2])


# ---- The error bound -----------------------------------------------------------------------------


@pytest.fixture
def weight(rng: np.random.Generator) -> mo.Q4_0Matrix:
    return mo.Q4_0Matrix.from_blocks(random_blocks(rng, 70, 544), (70, 544))


@pytest.mark.parametrize("shape", [(544,), (3, 544), (2, 2, 544)])
def test_results_are_within_the_bound(
    shape: tuple[int, ...],
    weight: mo.Q4_0Matrix,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = normal_input(rng, int(np.prod(shape[:-1])), 544).reshape(shape)
    assert_within_bound(mo.mul_mv_q4_0(weight, x), weight, x)
    monkeypatch.setattr("mlxops.testing.CHECKED_ELEMENTS", 544 * 7)
    assert_within_bound(mo.mul_mv_q4_0(weight, x), weight, x)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -1.0])
def test_a_wrong_element_is_found(
    wrong: float,
    weight: mo.Q4_0Matrix,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mlxops.testing.CHECKED_ELEMENTS", 544 * 16)
    x = normal_input(rng, 3, 544)
    result = mo.mul_mv_q4_0(weight, x)
    result[2, 40] += np.float32(wrong)
    with pytest.raises(AssertionError, match=r"^1 elements are beyond .* first at \(2, 40\): "):
        assert_within_bound(result, weight, x)


def test_the_bound_is_tight_enough_to_see_8_bits(
    weight: mo.Q4_0Matrix, rng: np.random.Generator
) -> None:
    """Activations that were rounded to 8 bits are noticed."""
    x = normal_input(rng, 4, 544)
    scale = np.abs(x).max(axis=1, keepdims=True) / 127
    rounded = (np.round(x / scale) * scale).astype(np.float32)
    with pytest.raises(AssertionError, match="beyond the error bound"):
        assert_within_bound(mo.mul_mv_q4_0(weight, rounded), weight, x)


def test_shapes_that_do_not_fit(weight: mo.Q4_0Matrix) -> None:
    for result, x in (
        (np.zeros(70), np.zeros(512)),
        (np.zeros(69), np.zeros(544)),
        (np.zeros((2, 70)), np.zeros(544)),
        (np.zeros(70), np.float32(1)),
    ):
        with pytest.raises(AssertionError, match=r"a weight of shape \(70, 544\) makes"):
            assert_within_bound(result, weight, x)


def test_the_bound_is_that_of_the_roundings() -> None:
    assert error_bound(32) == pytest.approx(22 * 2**-24, rel=1e-5)
    assert error_bound(4096) == pytest.approx(29 * 2**-24, rel=1e-5)
