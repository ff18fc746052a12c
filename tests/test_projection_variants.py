"""The variants of a projection's kernel: every one gives the bits of the canonical order, and says
what it does not take. (On the CPU all are the same function.)"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest

import mlxops as mo
from canonical_reference import CanonicalReference
from mlxops import _core
from mlxops.testing import assert_bits_equal
from q4_0_data import SCALES, normal_input, random_blocks, set_scale

INPUTS = _core.projection_variants()
VARIANTS = list(INPUTS)
Blocks = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


def takes(variant: str, K: int) -> bool:
    """Whether it takes weights of K columns."""
    return not variant.startswith("s4") or K % 64 == 0


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> Iterator[str]:
    """A variant that every projection uses while the test runs."""
    _core.force_projection_variant(request.param)
    yield str(request.param)
    _core.force_projection_variant(None)


def assert_canonical(
    blocks: tuple[Blocks, Blocks], x: Floats, device: str, reference: CanonicalReference
) -> None:
    """Both projections give the bits of the reference."""
    N, K = len(blocks[0]), x.shape[-1]
    a, b = (mo.Q4_0Matrix.from_blocks(each, (N, K)) for each in blocks)
    expected = [reference(each, x) for each in blocks]
    assert_bits_equal(mo.mul_mv_q4_0(a, x, device=device), expected[0])
    for result, other in zip(
        mo.fused_dual_proj_q4_0(a, b, x, device=device), expected, strict=True
    ):
        assert_bits_equal(result, other)


# Rows within one threadgroup, over its end and in several; blocks that do not fill a step, that
# fill it, and more than are in threadgroup memory at once for any number of inputs.
@pytest.mark.parametrize(
    ("N", "K"),
    [(1, 64), (3, 32), (9, 96), (33, 1024), (65, 1088), (40, 544), (5, 8256), (17, 4544)],
)
@pytest.mark.parametrize("extra", [0, 1], ids=["full", "and one more"])
def test_shapes(
    N: int,
    K: int,
    extra: int,
    variant: str,
    device: str,
    reference: CanonicalReference,
    rng: np.random.Generator,
) -> None:
    if not takes(variant, K):
        K += 32
    x = normal_input(rng, INPUTS[variant] + extra, K)
    assert_canonical((random_blocks(rng, N, K), random_blocks(rng, N, K)), x, device, reference)


@pytest.mark.parametrize("m", [1, 2, 3, 5, 7, 17])
def test_any_number_of_inputs(
    m: int, variant: str, device: str, reference: CanonicalReference, rng: np.random.Generator
) -> None:
    N, K = 34, 704
    x = normal_input(rng, m, K)
    assert_canonical((random_blocks(rng, N, K), random_blocks(rng, N, K)), x, device, reference)


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_scales(
    scale: int,
    variant: str,
    device: str,
    reference: CanonicalReference,
    rng: np.random.Generator,
) -> None:
    N, K = 9, 576
    a, b = random_blocks(rng, N, K), random_blocks(rng, N, K)
    set_scale(a, scale)
    set_scale(b, scale, 17)
    zeros = np.zeros((1, K), np.float32)
    x = np.concatenate([normal_input(rng, INPUTS[variant], K), zeros, -zeros])
    assert_canonical((a, b), x, device, reference)


@pytest.mark.usefixtures("keeps_subnormals")
def test_values_of_every_kind(
    variant: str, device: str, reference: CanonicalReference, rng: np.random.Generator
) -> None:
    """Subnormals, sums that cancel or overflow; NaN and infinity in one row and one block only."""
    N, K = 18, 1088
    m = INPUTS[variant] + 1
    x = np.ldexp(normal_input(rng, m, K), rng.integers(-149, 118, (m, K)).astype(np.int32))
    x[-1, 33] = np.nan
    x[0, 1056] = np.inf
    x[0, 1057] = -np.inf
    assert_canonical((random_blocks(rng, N, K), random_blocks(rng, N, K)), x, device, reference)


@pytest.mark.parametrize("K", [64, 576])
def test_every_nibble_in_every_position(
    K: int, variant: str, device: str, reference: CanonicalReference
) -> None:
    """Row q of the weight is the nibble q everywhere; one element of x at a time is not zero."""
    by_block = np.zeros((16, K // 32, 18), np.uint8)
    by_block[..., 1] = 0x3C  # the half 1.0
    by_block[..., 2:] = np.arange(16)[:, None, None] * 0x11
    blocks = by_block.reshape(16, K // 32 * 18)
    x = np.diag(np.arange(1, K + 1, dtype=np.float32))
    assert_canonical((blocks, blocks[::-1].copy()), x, device, reference)


def test_blocks_from_the_end_on_are_not_executed(
    variant: str, device: str, reference: CanonicalReference
) -> None:
    """A sum of negative zeros stays one, which it would not after a block of zeros."""
    N, K = 9, 64
    by_block = np.zeros((N, K // 32, 18), np.uint8)
    by_block[..., 1] = 0xBC  # the half -1.0
    by_block[..., 2:] = 0x88  # q - 8 = 0
    blocks = by_block.reshape(N, K // 32 * 18)
    x = np.full((INPUTS[variant], K), np.float32(1e-38))
    assert_canonical((blocks, blocks), x, device, reference)


def test_a_slice_of_rows(
    variant: str, device: str, reference: CanonicalReference, rng: np.random.Generator
) -> None:
    N, K = 40, 128
    blocks, x = random_blocks(rng, N, K), normal_input(rng, INPUTS[variant], K)
    weight = mo.Q4_0Matrix.from_blocks(blocks, (N, K))
    for rows in (slice(1, 8), slice(7, 40), slice(39, 40)):
        result = mo.mul_mv_q4_0(weight[rows], x, device=device)
        assert_bits_equal(result, reference(blocks, x)[:, rows])


def test_what_a_variant_does_not_take(variant: str, device: str, rng: np.random.Generator) -> None:
    weight = mo.Q4_0Matrix.from_blocks(random_blocks(rng, 3, 96), (3, 96))
    x = normal_input(rng, 1, 96)
    if takes(variant, 96):
        mo.mul_mv_q4_0(weight, x, device=device)
        return
    with pytest.raises(ValueError, match=f"variant {variant} needs a K that is a multiple of 64"):
        mo.mul_mv_q4_0(weight, x, device=device)


def test_an_input_that_is_not_aligned(
    variant: str, device: str, reference: CanonicalReference, rng: np.random.Generator
) -> None:
    N, K = 9, 128
    # (A result, because an array of NumPy's is copied to where it is aligned.)
    x = mo.qkv_split(normal_input(rng, 1, K + 3), 1, 1, K + 1, device=device)[2][0, 1:]
    blocks = random_blocks(rng, N, K)
    weight = mo.Q4_0Matrix.from_blocks(blocks, (N, K))
    expected = reference(blocks, x.copy()[None])[0]
    if variant.startswith("plain"):
        assert_bits_equal(mo.mul_mv_q4_0(weight, x, device=device), expected)
        return
    with pytest.raises(ValueError, match="x at a multiple of 16 bytes"):
        mo.mul_mv_q4_0(weight, x, device=device)
    _core.force_projection_variant(None)
    assert_bits_equal(mo.mul_mv_q4_0(weight, x, device=device), expected)


def test_a_weight_that_is_not_aligned(
    variant: str, device: str, reference: CanonicalReference, rng: np.random.Generator
) -> None:
    N, K = 9, 128
    blocks, x = random_blocks(rng, N, K), normal_input(rng, 1, K)
    memory = np.concatenate([np.zeros(2, np.uint8), blocks.ravel()])
    weight = mo.Q4_0Matrix._from_buffer(_core.Buffer(memory), 2, (N, K))
    if not variant.startswith("s4"):
        assert_bits_equal(mo.mul_mv_q4_0(weight, x, device=device), reference(blocks, x))
        return
    with pytest.raises(ValueError, match="weights at multiples of 4"):
        mo.mul_mv_q4_0(weight, x, device=device)


def test_a_variant_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="no projection has a variant named 's3'"):
        _core.force_projection_variant("s3")
    with pytest.raises(ValueError, match="no projection has a variant named ''"):
        _core.set_projection_choice("metal", 1, 1, "")
    with pytest.raises(ValueError, match="the device 'cpu' has no choice of kernels"):
        _core.set_projection_choice("cpu", 1, 1, "plain_m1")


CLASSES_OF_M = [(1,), (2,), (3, 4), (5, 8, 100)]
CLASSES_OF_ROWS = [(1, 2048), (2049, 4096), (4097, 12288), (12289, 2**31 - 1)]


@pytest.mark.parametrize("device_name", ["metal", "cuda"])
def test_a_choice_is_one_for_its_class(device_name: str) -> None:
    def choices() -> dict[tuple[int, int], str]:
        return {
            (m, rows): _core.projection_choice(device_name, m, rows)
            for ms in CLASSES_OF_M
            for m in ms
            for all_rows in CLASSES_OF_ROWS
            for rows in all_rows
        }

    before = choices()
    for ms in CLASSES_OF_M:
        for all_rows in CLASSES_OF_ROWS:
            chosen = before[ms[0], all_rows[0]]
            other = VARIANTS[VARIANTS.index(chosen) - 1]
            _core.set_projection_choice(device_name, ms[-1], all_rows[-1], other)
            expected = {
                (m, rows): other if m in ms and rows in all_rows else name
                for (m, rows), name in before.items()
            }
            assert choices() == expected
            _core.set_projection_choice(device_name, ms[0], all_rows[0], chosen)
    assert choices() == before


@pytest.mark.parametrize("device_name", ["metal", "cuda"])
def test_defaults_take_as_many_inputs_as_there_are(device_name: str) -> None:
    for ms, inputs in zip(CLASSES_OF_M, (1, 2, 4, 8), strict=True):
        for all_rows in CLASSES_OF_ROWS:
            assert INPUTS[_core.projection_choice(device_name, ms[0], all_rows[0])] == inputs


def test_the_names_say_how_many_rows_of_x_they_take() -> None:
    for name, inputs in INPUTS.items():
        found = re.search(r"_m(\d+)", name)
        assert found is not None
        assert int(found[1]) == inputs


def test_the_classes_are_those_of_the_choice() -> None:
    ms, rows = _core.projection_classes()
    assert ms == tuple(each[-1] for each in CLASSES_OF_M[:-1])
    assert rows == tuple(each[-1] for each in CLASSES_OF_ROWS[:-1])


def test_other_devices_use_the_plain_ones() -> None:
    for ms, inputs in zip(CLASSES_OF_M, (1, 2, 4, 8), strict=True):
        assert _core.projection_choice("cpu", ms[0], 1) == f"plain_m{inputs}"
