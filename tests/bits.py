"""Comparing float32 arrays by their bits."""

import numpy as np
import numpy.typing as npt


def bit_patterns(values: npt.NDArray[np.float32], *, nans_are_one: bool) -> npt.NDArray[np.uint32]:
    """The bits of every element, NaNs reduced to one pattern where asked."""
    patterns = np.ascontiguousarray(values).view(np.uint32)
    return np.where(np.isnan(values), np.uint32(0x7FC00000), patterns) if nans_are_one else patterns


def assert_bits_equal(
    actual: npt.NDArray[np.float32],
    expected: npt.NDArray[np.float32],
    *,
    nans_are_one: bool = True,
) -> None:
    """Both are float32, of one shape, and equal bit for bit; all NaNs count as one unless told."""
    assert actual.dtype == expected.dtype == np.float32, (actual.dtype, expected.dtype)
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    actual_bits = bit_patterns(actual, nans_are_one=nans_are_one)
    expected_bits = bit_patterns(expected, nans_are_one=nans_are_one)
    different = np.argwhere(actual_bits != expected_bits)
    if len(different) == 0:
        return
    first = tuple(int(i) for i in different[0])
    raise AssertionError(
        f"{len(different)} of {actual.size} elements of shape {actual.shape} differ, first at "
        f"{first}: {actual[first]!r} (0x{int(actual_bits[first]):08x}) instead of "
        f"{expected[first]!r} (0x{int(expected_bits[first]):08x})"
    )
