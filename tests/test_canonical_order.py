"""mul_mv_q4_0 equals the canonical order, bit for bit."""

from itertools import combinations
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import mlxops as mo
from canonical_reference import CanonicalReference
from mlxops.testing import assert_bits_equal
from q4_0_data import (
    SCALES,
    normal_input,
    ordinary_scales,
    pack_blocks,
    random_blocks,
    set_scale,
    vanishing,
)

NS = [1, 3, 7, 8, 9, 33, 4093, 32001]
MS = [1, 2, 3, 8, 9, 100]
# In this order the largest N meets the largest m with a small K, and the largest K with a small m.
KS = [96, 64, 32, 4096, 544]
SHAPES = [(N, KS[(i + j) % len(KS)], m) for i, N in enumerate(NS) for j, m in enumerate(MS)]

GOLDEN = np.load(Path(__file__).parent / "data" / "canonical_order.npz")
GOLDEN_CASES = sorted({key.split("/")[0] for key in GOLDEN})

MANTISSA_BITS = 24


def golden(
    case: str,
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Blocks, x and the expected results of a stored case."""
    return GOLDEN[f"{case}/blocks"], GOLDEN[f"{case}/x"], GOLDEN[f"{case}/bits"].view(np.float32)


def project(
    blocks: npt.NDArray[np.uint8], x: npt.NDArray[np.float32], device: str
) -> npt.NDArray[np.float32]:
    """mul_mv_q4_0 of a weight given by its blocks."""
    weight = mo.Q4_0Matrix.from_blocks(blocks, (len(blocks), x.shape[-1]))
    return mo.mul_mv_q4_0(weight, x, device=device)


def sampled_rows(rng: np.random.Generator, N: int) -> npt.NDArray[np.int64]:
    """All rows of a small weight; of a large one both ends and some in between."""
    if N <= 64:
        return np.arange(N)
    between = rng.integers(9, N - 9, 46)
    return np.concatenate([np.arange(9), np.sort(between), np.arange(N - 9, N)])


def test_there_are_nine_golden_cases() -> None:
    assert len(GOLDEN_CASES) == 9


@pytest.mark.parametrize("case", GOLDEN_CASES)
def test_the_reference_reproduces_the_golden_cases(
    case: str, reference: CanonicalReference
) -> None:
    blocks, x, expected = golden(case)
    assert_bits_equal(reference(blocks, x), expected)


@pytest.mark.usefixtures("keeps_subnormals")
@pytest.mark.parametrize("case", GOLDEN_CASES)
def test_every_device_reproduces_the_golden_cases(case: str, device: str) -> None:
    blocks, x, expected = golden(case)
    assert_bits_equal(project(blocks, x, device), expected)


def test_the_shapes_cover_every_pair() -> None:
    for first, second in combinations(range(3), 2):
        values = ([NS, KS, MS][first], [NS, KS, MS][second])
        covered = {(shape[first], shape[second]) for shape in SHAPES}
        assert covered == {(a, b) for a in values[0] for b in values[1]}


@pytest.mark.parametrize(("N", "K", "m"), SHAPES)
def test_shapes(
    N: int, K: int, m: int, device: str, reference: CanonicalReference, rng: np.random.Generator
) -> None:
    blocks = random_blocks(rng, N, K)
    x = normal_input(rng, m, K)
    rows = sampled_rows(rng, N)
    assert_bits_equal(project(blocks, x, device)[:, rows], reference(blocks, x, rows))


@pytest.mark.usefixtures("keeps_subnormals")
def test_values_of_every_magnitude(
    device: str, reference: CanonicalReference, rng: np.random.Generator
) -> None:
    """Sums in which almost every term is rounded away, or cancels, or overflows."""
    N, K, m = 33, 1056, 9
    blocks = random_blocks(rng, N, K)
    signs = rng.choice([0, 0x8000], (N, K // 32))
    scales = (signs | rng.integers(0, 0x7C00, signs.shape)).astype("<u2")
    blocks.reshape(N, K // 32, 18)[:, :, :2] = scales[..., None].view(np.uint8)
    x = np.ldexp(normal_input(rng, m, K), rng.integers(-100, 118, (m, K)).astype(np.int32))
    assert_bits_equal(project(blocks, x, device), reference(blocks, x))


@pytest.mark.parametrize("d", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize("block", [None, 0, 5, 16], ids="in block {}".format)
def test_scales(
    d: int,
    block: int | None,
    device: str,
    reference: CanonicalReference,
    rng: np.random.Generator,
) -> None:
    N, K = 9, 544
    blocks = random_blocks(rng, N, K)
    set_scale(blocks, d, block)
    zeros = np.zeros((1, K), np.float32)
    x = np.concatenate([normal_input(rng, 3, K), zeros, -zeros])
    assert_bits_equal(project(blocks, x, device), reference(blocks, x))


@pytest.mark.parametrize("K", [32, 96, 544])
def test_every_nibble_in_every_position(
    K: int, device: str, reference: CanonicalReference, rng: np.random.Generator
) -> None:
    N = 16
    nibbles = ((np.arange(N)[:, None] + np.arange(K)) % 16).astype(np.uint8)
    assert all(set(nibbles[:, k]) == set(range(16)) for k in range(K))
    blocks = pack_blocks(ordinary_scales(rng, N, K), nibbles)
    x = normal_input(rng, 3, K)
    assert_bits_equal(project(blocks, x, device), reference(blocks, x))


def test_a_unit_vector_picks_one_weight(device: str, rng: np.random.Generator) -> None:
    """Known without any reference: d (q - 8) is exact, and so is adding zeros to it."""
    N, K = 16, 64
    nibbles = ((np.arange(N)[:, None] + np.arange(K)) % 16).astype(np.uint8)
    scales = ordinary_scales(rng, N, K)
    expected = scales.view(np.float16).astype(np.float32).repeat(32, axis=1) * (nibbles - 8.0)
    actual = project(pack_blocks(scales, nibbles), np.eye(K, dtype=np.float32), device)
    np.testing.assert_array_equal(actual.T, expected)


INPUTS = {
    "zero": 0.0,
    "minus zero": -0.0,
    "inf": np.inf,
    "minus inf": -np.inf,
    "NaN": np.nan,
    "largest": np.finfo(np.float32).max,
    "minus largest": np.finfo(np.float32).min,
    "smallest subnormal": 2.0**-149,
    "largest subnormal": 2.0**-126 - 2.0**-149,
    "negative subnormal": -(2.0**-130),
    "smallest normal": 2.0**-126,
}


@pytest.mark.usefixtures("keeps_subnormals")
@pytest.mark.parametrize("value", INPUTS.values(), ids=INPUTS)
@pytest.mark.parametrize("d", [SCALES["one"], SCALES["smallest subnormal"]], ids=["1", "2**-24"])
def test_inputs(
    value: float, d: int, device: str, reference: CanonicalReference, rng: np.random.Generator
) -> None:
    """One such value in each row of x, many of them, and nothing else."""
    N, K, m = 9, 544, 8
    blocks = random_blocks(rng, N, K)
    set_scale(blocks, d, 3)
    x = normal_input(rng, m, K)
    x[np.arange(m), rng.integers(0, K, m)] = value
    x[4] = np.where(rng.random(K) < 0.3, np.float32(value), x[4])
    x[5] = np.where(rng.random(K) < 0.5, np.float32(value), np.float32(-value))
    x[6] = value
    x[7, 96:128] = value
    assert_bits_equal(project(blocks, x, device), reference(blocks, x))


@pytest.mark.usefixtures("keeps_subnormals")
@pytest.mark.parametrize("d", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize("value", INPUTS.values(), ids=INPUTS)
def test_scales_meet_inputs(
    value: float, d: int, device: str, reference: CanonicalReference, rng: np.random.Generator
) -> None:
    blocks = random_blocks(rng, 9, 32)
    set_scale(blocks, d)
    x = np.full((2, 32), value, np.float32)
    x[1, ::2] *= -1
    assert_bits_equal(project(blocks, x, device), reference(blocks, x))


@pytest.mark.usefixtures("keeps_subnormals")
def test_results_that_are_subnormal(
    device: str, reference: CanonicalReference, rng: np.random.Generator
) -> None:
    """Every intermediate is rounded to a multiple of 2**-149, none is flushed."""
    blocks = random_blocks(rng, 33, 544)
    x = np.ldexp(normal_input(rng, 8, 544), -int(126 + MANTISSA_BITS // 2)).astype(np.float32)
    expected = reference(blocks, x)
    assert ((expected != 0) & (np.abs(expected) < 2.0**-126)).any()
    assert_bits_equal(project(blocks, x, device), expected)


@pytest.mark.usefixtures("keeps_subnormals")
@pytest.mark.parametrize("n_blocks", [16, 17, 20, 23, 31, 33])
@pytest.mark.parametrize("m", range(1, 9))
def test_the_sign_of_zero(
    n_blocks: int, m: int, device: str, reference: CanonicalReference, rng: np.random.Generator
) -> None:
    """acc starts at +0, not at the first product, and blocks beyond the row add nothing."""
    blocks, x = vanishing(rng, 33, 32 * n_blocks, m)
    expected = reference(blocks, x)
    assert (expected == 0).all()
    assert set(np.signbit(expected).flat) == ({True} if n_blocks == 16 else {False, True})
    assert_bits_equal(project(blocks, x, device), expected)
