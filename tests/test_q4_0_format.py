"""Quantising and dequantising equal the package gguf's, byte for byte."""

import gguf
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import mlxops as mo
from mlxops.testing import assert_bits_equal
from q4_0_data import SCALES, pack_blocks, random_blocks
from raising import raises, shape, word

Q4_0 = gguf.GGMLQuantizationType.Q4_0

# The smallest magnitude whose scale x / -8 rounds to infinity as a half.
TOO_LARGE = np.float32(65520 * 8)
LARGEST = np.nextafter(TOO_LARGE, np.float32(0))

RAGGED = [(1, 32), (3, 64), (7, 96), (33, 544), (5, 4096)]


def comparable(
    values: npt.NDArray[np.float32], blocks: npt.NDArray[np.uint8]
) -> npt.NDArray[np.uint8]:
    """Blocks without what the known implementations disagree on.

    That is the sign of d for a block of zeros, and all of a block whose 1 / d is not finite.
    """
    by_block = blocks.reshape(-1, 18).copy()
    largest = np.abs(values).reshape(-1, 32).max(axis=1)
    by_block[largest == 0, 1] &= 0x7F
    with np.errstate(divide="ignore", over="ignore"):
        finite = np.isfinite(np.float32(1) / (largest / np.float32(8)))
    compared: npt.NDArray[np.uint8] = by_block[finite | (largest == 0)]
    return compared


def assert_quantized_as_by_gguf(values: npt.NDArray[np.float32]) -> None:
    """The bytes of Q4_0Matrix.quantize are those of gguf.quantize."""
    with np.errstate(over="ignore", invalid="ignore"):
        expected = gguf.quantize(values, Q4_0)
    actual = mo.Q4_0Matrix.quantize(values).blocks
    assert actual.shape == expected.shape
    np.testing.assert_array_equal(comparable(values, actual), comparable(values, expected))


@pytest.mark.parametrize("size", RAGGED)
def test_normal_data(size: tuple[int, int], rng: np.random.Generator) -> None:
    assert_quantized_as_by_gguf(rng.standard_normal(size, np.float32))


@pytest.mark.parametrize("exponent", [-149, -130, -126, -100, -40, -24, -20, -15, -10, 10, 15])
def test_data_of_any_magnitude(exponent: int, rng: np.random.Generator) -> None:
    """Scales that are subnormal halves, and that vanish in a half."""
    assert_quantized_as_by_gguf(np.ldexp(rng.standard_normal((64, 96), np.float32), exponent))


def test_the_largest_scales(rng: np.random.Generator) -> None:
    values = rng.uniform(-1, 1, (16, 96)).astype(np.float32) * LARGEST
    values[:8, 5] = LARGEST
    values[8:, 50] = -LARGEST
    assert_quantized_as_by_gguf(values)


@pytest.mark.parametrize("value", [1, -1, 0.1, -0.1])
def test_the_first_of_the_largest_wins(value: float, rng: np.random.Generator) -> None:
    """Its sign becomes the scale's; the other sign of the same magnitude is clipped to 15."""
    values = rng.uniform(-0.05, 0.05, (31, 32)).astype(np.float32)
    for first, row in enumerate(values):
        row[first] = value
        row[first + 1 :: 2] = -value
    assert_quantized_as_by_gguf(values)
    blocks = mo.Q4_0Matrix.quantize(values).blocks
    scales = blocks[:, :2].copy().view(np.float16)
    np.testing.assert_array_equal(scales, np.float16(np.float32(value) / -8) * np.ones((31, 1)))


def test_values_between_two_steps() -> None:
    """x / d halfway between integers, and the float32 neighbours of it."""
    steps = np.arange(-16, 16, dtype=np.float32) / 2
    for d in np.array([1, -1, 0.1, -0.1, 0.3, 1 / 3, 1e-3, 7, 1e-7], np.float32):
        values = steps * d
        around = np.stack(
            [values, np.nextafter(values, np.float32(9)), np.nextafter(values, np.float32(-9))]
        )
        around[:, 0] = np.float32(-8) * d
        assert_quantized_as_by_gguf(around)


def test_zeros() -> None:
    values = np.zeros((4, 64), np.float32)
    values[1] = -0.0
    values[2, 40] = 1
    values[3, ::2] = -0.0
    assert_quantized_as_by_gguf(values)
    assert (mo.Q4_0Matrix.quantize(values).dequantize()[[0, 1, 3]] == 0).all()


@given(
    arrays(np.uint32, (2, 64), elements=st.integers(0, 2**32 - 1), fill=st.nothing()).map(
        lambda bits: bits.view(np.float32)
    )
)
def test_any_float32(values: npt.NDArray[np.float32]) -> None:
    values = np.where(np.abs(values) < TOO_LARGE, values, np.float32(0))
    assert_quantized_as_by_gguf(values)


@given(
    arrays(np.float32, (3, 32), elements=st.floats(-4, 4, width=16)),
    st.integers(-20, 15),
)
def test_repeated_and_round_values(values: npt.NDArray[np.float32], exponent: int) -> None:
    assert_quantized_as_by_gguf(np.ldexp(values, exponent))


@pytest.mark.parametrize("size", RAGGED)
def test_quantising_equals_ggml(size: tuple[int, int], rng: np.random.Generator) -> None:
    libgguf = pytest.importorskip("libgguf")
    for exponent in (-20, -10, 0, 10):
        values = np.ldexp(rng.standard_normal(size, np.float32), exponent)
        values[0, :5] = (0, -0.0, 4, -4, 4)
        expected = libgguf.quantize_rows(values, Q4_0)
        actual = mo.Q4_0Matrix.quantize(values).blocks
        np.testing.assert_array_equal(comparable(values, actual), comparable(values, expected))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f2", ">f4", ">f8"])
def test_input_types(dtype: str, rng: np.random.Generator) -> None:
    values = rng.standard_normal((5, 96)).astype(dtype)
    expected = gguf.quantize(values.astype(np.float32), Q4_0)
    np.testing.assert_array_equal(mo.Q4_0Matrix.quantize(values).blocks, expected)


def test_float64_is_rounded_to_float32_first() -> None:
    """Halfway between steps as float32, just below it as float64."""
    values = np.zeros((1, 32))
    values[0, 0] = -8
    values[0, 1] = 0.5 - 2.0**-40
    np.testing.assert_array_equal(
        mo.Q4_0Matrix.quantize(values).blocks, gguf.quantize(values.astype(np.float32), Q4_0)
    )


@pytest.mark.parametrize(
    "layout",
    [
        lambda values: np.asfortranarray(values),
        lambda values: values.repeat(2, axis=1)[:, ::2],
        lambda values: values[::-1, ::-1].copy()[::-1, ::-1],
        lambda values: values.astype(np.float64).T.copy().T,
        lambda values: values.tolist(),
    ],
    ids=["Fortran order", "strided", "reversed", "transposed float64", "nested list"],
)
def test_input_layouts(layout: object, rng: np.random.Generator) -> None:
    assert callable(layout)
    values = rng.standard_normal((5, 96), np.float32)
    before = values.copy()
    np.testing.assert_array_equal(
        mo.Q4_0Matrix.quantize(layout(values)).blocks, gguf.quantize(values, Q4_0)
    )
    np.testing.assert_array_equal(values, before)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf, TOO_LARGE, -TOO_LARGE])
@pytest.mark.parametrize(("row", "column"), [(0, 0), (5, 95), (19, 31)])
def test_refused_values(
    value: float, row: int, column: int, dtype: type[np.floating], rng: np.random.Generator
) -> None:
    values = rng.standard_normal((20, 96)).astype(dtype)
    values[row, column] = value
    with raises(ValueError, rf"\brow {row}\b"):
        mo.Q4_0Matrix.quantize(values)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_refused_float16(value: float) -> None:
    values = np.zeros((3, 32), np.float16)
    values[2, 7] = value
    with raises(ValueError, r"\brow 2\b"):
        mo.Q4_0Matrix.quantize(values)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_magnitude_is_accepted_and_the_next_is_not(sign: int) -> None:
    values = np.zeros((1, 32), np.float32)
    values[0, 3] = sign * LARGEST
    d = mo.Q4_0Matrix.quantize(values).blocks[0, :2].copy().view(np.float16)[0]
    assert d == sign * -65504
    values[0, 3] = sign * TOO_LARGE
    with raises(ValueError, r"\brow 0\b"):
        mo.Q4_0Matrix.quantize(values)
    rounds_to_it = values.astype(np.float64)
    rounds_to_it[0, 3] = np.nextafter(float(sign * TOO_LARGE), 0)
    with raises(ValueError, r"\brow 0\b"):
        mo.Q4_0Matrix.quantize(rounds_to_it)


def test_a_float64_beyond_float32_is_refused() -> None:
    values = np.zeros((2, 32))
    values[1, 3] = 1e300
    with raises(ValueError, r"\brow 1\b"):
        mo.Q4_0Matrix.quantize(values)


@pytest.mark.parametrize(
    "dtype", ["int8", "uint8", "int32", "int64", "bool", "complex64", "complex128", "object"]
)
def test_refused_types(dtype: str) -> None:
    with raises(TypeError, word(dtype)):
        mo.Q4_0Matrix.quantize(np.zeros((2, 32), dtype))


def test_a_masked_array_is_refused() -> None:
    with raises(TypeError, "(?i)masked", r"filled"):
        mo.Q4_0Matrix.quantize(np.ma.zeros((2, 32), np.float32))


@pytest.mark.parametrize("size", [(), (32,), (2, 2, 32)])
def test_refused_numbers_of_dimensions(size: tuple[int, ...]) -> None:
    with raises(ValueError, shape(size)):
        mo.Q4_0Matrix.quantize(np.zeros(size, np.float32))


@pytest.mark.parametrize("K", [1, 16, 33, 48])
def test_a_row_that_is_not_whole_blocks_is_refused(K: int) -> None:
    with raises(ValueError, rf"\b{K}\b", r"\b32\b"):
        mo.Q4_0Matrix.quantize(np.zeros((2, K), np.float32))


@pytest.mark.parametrize(("N", "K", "named"), [(0, 32, "N"), (2, 0, "K")])
def test_an_empty_matrix_is_refused(N: int, K: int, named: str) -> None:
    with raises(ValueError, word(named)):
        mo.Q4_0Matrix.quantize(np.zeros((N, K), np.float32))


def dequantized(blocks: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Q4_0Matrix.dequantize of a matrix given by its blocks."""
    N, row_bytes = blocks.shape
    return mo.Q4_0Matrix.from_blocks(blocks, (N, row_bytes // 18 * 32)).dequantize()


@pytest.mark.parametrize("size", RAGGED)
def test_dequantising(size: tuple[int, int], rng: np.random.Generator) -> None:
    blocks = random_blocks(rng, *size)
    result = dequantized(blocks)
    assert result.shape == size
    assert result.flags.c_contiguous
    assert_bits_equal(result, gguf.dequantize(blocks, Q4_0))


def test_dequantising_every_scale_with_every_nibble() -> None:
    """All 65536 halves: zeros of both signs, subnormals, infinities, NaNs."""
    scales = np.arange(2**16, dtype=np.uint16).reshape(-1, 4)
    nibbles = np.tile(np.arange(128, dtype=np.uint8) % 16, (len(scales), 1))
    blocks = pack_blocks(scales, nibbles)
    with np.errstate(invalid="ignore"):
        assert_bits_equal(dequantized(blocks), gguf.dequantize(blocks, Q4_0))


def test_dequantising_every_nibble_in_every_position() -> None:
    nibbles = ((np.arange(16)[:, None] + np.arange(64)) % 16).astype(np.uint8)
    blocks = pack_blocks(np.full((16, 2), SCALES["one"], np.uint16), nibbles)
    assert_bits_equal(dequantized(blocks), nibbles.astype(np.float32) - 8)


@pytest.mark.parametrize("size", RAGGED)
def test_dequantising_equals_ggml(size: tuple[int, int], rng: np.random.Generator) -> None:
    libgguf = pytest.importorskip("libgguf")
    blocks = random_blocks(rng, *size)
    assert_bits_equal(dequantized(blocks), libgguf.dequantize_rows(blocks, Q4_0))


def test_quantising_what_was_dequantised_changes_nothing(rng: np.random.Generator) -> None:
    matrix = mo.Q4_0Matrix.quantize(rng.standard_normal((33, 96), np.float32))
    again = mo.Q4_0Matrix.quantize(matrix.dequantize())
    np.testing.assert_array_equal(again.dequantize(), matrix.dequantize())
