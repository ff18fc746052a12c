"""For the numerical comparisons of tests: by bits, and within the error bound of a projection.

from mlxops.testing import assert_bits_equal, assert_within_bound

assert_bits_equal(mo.mul_mv_q4_0(w, x)[3], mo.mul_mv_q4_0(w, x[3]))
assert_within_bound(mo.mul_mv_q4_0(w, x), w, x)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlxops._core import Q4_0Matrix

__all__ = ["assert_bits_equal", "assert_within_bound", "error_bound"]

UNIT_ROUNDOFF = 2.0**-24

# float64 copies of the weights are made for so many elements at a time.
CHECKED_ELEMENTS = 1 << 24


def assert_bits_equal(actual: ArrayLike, expected: ArrayLike, *, nans_are_one: bool = True) -> None:
    """Raise AssertionError unless both have one float dtype, one shape, and the same bits.

    The message has the shape, the number of differences, and of the first one the index, both
    values, their bits, and how many ulps lie between them. 0.0 and -0.0 differ. All NaNs count as
    one, since a GPU may change their payload, unless `nans_are_one` is False.
    """
    __tracebackhide__ = True
    a, b = np.asarray(actual), np.asarray(expected)
    if a.dtype.kind != "f" or b.dtype != a.dtype:
        raise AssertionError(f"dtype {a.dtype} instead of {b.dtype}: both must be one float dtype")
    if a.shape != b.shape:
        raise AssertionError(f"shape {a.shape} instead of {b.shape}")
    a_bits, b_bits = _bits(a), _bits(b)
    different = a_bits != b_bits
    if nans_are_one:
        different &= ~(np.isnan(a) & np.isnan(b))
    n = int(np.count_nonzero(different))
    if n == 0:
        return
    first = tuple(int(i) for i in np.argwhere(different)[0])
    digits = 2 * a.dtype.itemsize
    raise AssertionError(
        f"{n} of {a.size} elements of shape {a.shape} differ, first at {first}: "
        f"{a[first]!r} (0x{int(a_bits[first]):0{digits}x}) instead of "
        f"{b[first]!r} (0x{int(b_bits[first]):0{digits}x}), {_distance(a[first], b[first])}"
    )


def error_bound(K: int) -> float:
    """Return the largest error of a projection's element, relative to the sum of |x w| over K.

    n u / (1 - n u): of the n = 21 + ceil(K / 512) roundings that lie on the way of a product in the
    canonical order, each at most u = 2^-24 (N. J. Higham, Accuracy and Stability of Numerical
    Algorithms, lemma 3.1).
    """
    roundings = 21 + -(-K // 512)
    return roundings * UNIT_ROUNDOFF / (1 - roundings * UNIT_ROUNDOFF)


def assert_within_bound(result: ArrayLike, weight: Q4_0Matrix, x: ArrayLike) -> None:
    """Raise AssertionError unless every element is x @ weight.T up to the error bound.

    `x` has the shape (..., K), `result` (..., N). The reference is computed in float64 from the
    dequantised weights. Overflow and subnormals are not allowed for.
    """
    __tracebackhide__ = True
    N, K = weight.shape
    wide = np.asarray(x, np.float64)
    got = np.asarray(result)
    if wide.shape[-1:] != (K,) or got.shape != (*wide.shape[:-1], N):
        raise AssertionError(
            f"x has shape {wide.shape} and the result {got.shape}; a weight of shape {(N, K)} "
            f"makes (..., {N}) of (..., {K})"
        )
    rows = max(1, CHECKED_ELEMENTS // K)
    for begin in range(0, N, rows):
        W = weight[begin : begin + rows].dequantize().astype(np.float64)
        _check_rows(got[..., begin : begin + rows], wide, W, begin)


def _check_rows(
    got: NDArray[Any], x: NDArray[np.float64], W: NDArray[np.float64], begin: int
) -> None:
    """Check those elements of a result that rows of the weight from `begin` on have made."""
    expected = x @ W.T
    allowed = error_bound(W.shape[1]) * (np.abs(x) @ np.abs(W.T))
    beyond = ~(np.abs(got - expected) <= allowed)  # so that a NaN is beyond
    if not beyond.any():
        return
    first = tuple(int(i) for i in np.argwhere(beyond)[0])
    raise AssertionError(
        f"{int(np.count_nonzero(beyond))} elements are beyond the error bound, first at "
        f"{(*first[:-1], begin + first[-1])}: {got[first]!r} instead of {expected[first]!r}, off "
        f"by {abs(float(got[first]) - expected[first]):.3g} where {allowed[first]:.3g} is allowed"
    )


def _bits(values: NDArray[Any]) -> NDArray[Any]:
    """The elements as unsigned integers of their size, in the machine's byte order."""
    native = np.ascontiguousarray(values, values.dtype.newbyteorder("="))
    return native.reshape(values.shape).view(f"u{values.dtype.itemsize}")


def _distance(a: np.floating[Any], b: np.floating[Any]) -> str:
    """How far two values are apart, for people."""
    if np.isnan(a) or np.isnan(b):
        return "of which one is NaN" if np.isnan(a) != np.isnan(b) else "NaNs with other payloads"
    return f"{abs(_place(a) - _place(b))} ulp apart"


def _place(value: np.floating[Any]) -> int:
    """The value's number among all floats of its type, 0 being both zeros."""
    bits = int(_bits(np.asarray(value)))
    sign = 1 << (8 * value.dtype.itemsize - 1)
    return bits if bits < sign else sign - bits
