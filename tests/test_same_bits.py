"""A result does not depend on how it is asked for: the bits are the same."""

from pathlib import Path

import numpy as np
import pytest

import fresh_python
import mlxops as mo
from canonical_reference import CanonicalReference
from float_environment import DIRECTIONS, FloatEnvironment, Setting
from mlxops.testing import assert_bits_equal
from q4_0_data import SCALES, normal_input, random_blocks, set_scale

THREADS = [1, 2, 3, 4, 5, 64]
ENVIRONMENTS = [Setting(rounding, flush) for rounding in DIRECTIONS for flush in (False, True)]


def random_matrix(rng: np.random.Generator, N: int, K: int) -> mo.Q4_0Matrix:
    """A weight [N, K] with ordinary scales, and among them a few of every kind."""
    blocks = random_blocks(rng, N, K)
    for row, d in zip(range(7, N, 3), SCALES.values(), strict=False):
        set_scale(blocks[row : row + 1], d, int(rng.integers(K // 32)))
    return mo.Q4_0Matrix.from_blocks(blocks, (N, K))


@pytest.mark.parametrize("m", [1, 2, 3, 8, 9, 100])
@pytest.mark.parametrize(("N", "K"), [(1, 32), (7, 96), (33, 544), (8, 4096), (1029, 64)])
def test_fused_equals_two_single(
    N: int, K: int, m: int, device: str, rng: np.random.Generator
) -> None:
    weight_a, weight_b = random_matrix(rng, N, K), random_matrix(rng, N, K)
    x = normal_input(rng, m, K)
    a, b = mo.fused_dual_proj_q4_0(weight_a, weight_b, x, device=device)
    assert_bits_equal(a, mo.mul_mv_q4_0(weight_a, x, device=device))
    assert_bits_equal(b, mo.mul_mv_q4_0(weight_b, x, device=device))


def test_fused_with_the_same_weight_twice(device: str, rng: np.random.Generator) -> None:
    weight = random_matrix(rng, 33, 96)
    x = normal_input(rng, 3, 96)
    a, b = mo.fused_dual_proj_q4_0(weight, weight, x, device=device)
    assert_bits_equal(a, b)
    assert not np.shares_memory(a, b)


@pytest.mark.parametrize("m", [2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 100])
@pytest.mark.parametrize(("N", "K"), [(9, 32), (33, 544), (70, 4096)])
def test_a_batch_equals_its_rows_one_by_one(
    N: int, K: int, m: int, device: str, rng: np.random.Generator
) -> None:
    weight_a, weight_b = random_matrix(rng, N, K), random_matrix(rng, N, K)
    x = normal_input(rng, m, K)
    batch = mo.fused_dual_proj_q4_0(weight_a, weight_b, x, device=device)
    rows = [mo.fused_dual_proj_q4_0(weight_a, weight_b, row, device=device) for row in x]
    for actual, expected in zip(batch, zip(*rows, strict=True), strict=True):
        assert_bits_equal(actual, np.stack(expected))
    single = [mo.mul_mv_q4_0(weight_a, row, device=device) for row in x]
    assert_bits_equal(mo.mul_mv_q4_0(weight_a, x, device=device), np.stack(single))


@pytest.mark.usefixtures("restore_threads")
@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize(("N", "K", "m"), [(7, 32, 1), (33, 544, 9), (4093, 544, 1), (515, 96, 3)])
def test_any_number_of_threads(
    N: int,
    K: int,
    m: int,
    threads: int,
    device: str,
    reference: CanonicalReference,
    rng: np.random.Generator,
) -> None:
    blocks = random_blocks(rng, N, K)
    weight = mo.Q4_0Matrix.from_blocks(blocks, (N, K))
    x = normal_input(rng, m, K)
    expected = reference(blocks, x)
    mo.set_num_threads(threads)
    assert_bits_equal(mo.mul_mv_q4_0(weight, x, device=device), expected)
    for result in mo.fused_dual_proj_q4_0(weight, weight, x, device=device):
        assert_bits_equal(result, expected)


@pytest.mark.parametrize(
    ("start", "stop"),
    [(0, 1), (0, 8), (1, 2), (1, 9), (3, 33), (7, 1029), (516, 517), (1021, 1029)],
)
def test_any_slice_of_rows(start: int, stop: int, device: str, rng: np.random.Generator) -> None:
    weight = random_matrix(rng, 1029, 96)
    x = normal_input(rng, 3, 96)
    whole = mo.mul_mv_q4_0(weight, x, device=device)
    part = mo.mul_mv_q4_0(weight[start:stop], x, device=device)
    assert_bits_equal(part, whole[:, start:stop])


def test_any_order_of_rows(device: str, rng: np.random.Generator) -> None:
    weight = random_matrix(rng, 65, 544)
    x = normal_input(rng, 3, 544)
    order = rng.permutation(65)
    permuted = mo.Q4_0Matrix.from_blocks(weight.blocks[order], weight.shape)
    assert_bits_equal(
        mo.mul_mv_q4_0(permuted, x, device=device),
        mo.mul_mv_q4_0(weight, x, device=device)[:, order],
    )


def test_a_concatenation_equals_its_parts(device: str, rng: np.random.Generator) -> None:
    parts = [random_matrix(rng, N, 96) for N in (9, 1, 30)]
    x = normal_input(rng, 3, 96)
    together = mo.mul_mv_q4_0(mo.Q4_0Matrix.concat(parts), x, device=device)
    apart = [mo.mul_mv_q4_0(part, x, device=device) for part in parts]
    assert_bits_equal(together, np.concatenate(apart, axis=1))


@pytest.mark.usefixtures("restore_threads")
@pytest.mark.parametrize("setting", ENVIRONMENTS, ids=str)
def test_any_float_environment_of_the_caller(
    setting: Setting,
    device: str,
    reference: CanonicalReference,
    float_environment: FloatEnvironment,
    rng: np.random.Generator,
) -> None:
    N, K, m = 2051, 544, 4
    blocks = random_blocks(rng, N, K)
    weight = mo.Q4_0Matrix.from_blocks(blocks, (N, K))
    x = normal_input(rng, m, K)
    x[3] = np.ldexp(x[3], -130)
    mo.set_num_threads(3)
    with float_environment.within(setting):
        single = mo.mul_mv_q4_0(weight, x, device=device)
        after_single = float_environment.get()
        fused = mo.fused_dual_proj_q4_0(weight, weight, x, device=device)
        after_fused = float_environment.get()
    assert after_single == setting
    assert after_fused == setting
    expected = reference(blocks, x)
    for result in (single, *fused):
        assert_bits_equal(result, expected)


def test_threads_started_in_an_unusual_float_environment(
    device: str, reference: CanonicalReference, tmp_path: Path, rng: np.random.Generator
) -> None:
    """A new thread begins with the environment of the one that starts it."""
    N, K, m = 4093, 544, 4
    blocks, x = random_blocks(rng, N, K), normal_input(rng, m, K)
    np.savez(tmp_path / "inputs.npz", blocks=blocks, x=x)
    fresh_python.run(
        f"""
        import sys
        from pathlib import Path

        import mlxops as mo
        import numpy as np

        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from float_environment import FloatEnvironment, Setting

        directory = Path({str(tmp_path)!r})
        inputs = np.load(directory / "inputs.npz")
        weight = mo.Q4_0Matrix.from_blocks(inputs["blocks"], ({N}, {K}))
        x = inputs["x"]
        mo.set_num_threads(4)
        with FloatEnvironment(directory).within(Setting("upward", True)):
            result = mo.mul_mv_q4_0(weight, x, device={device!r})
        np.save(directory / "result.npy", result)
        """
    )
    assert_bits_equal(np.load(tmp_path / "result.npy"), reference(blocks, x))


@pytest.mark.parametrize("setting", ENVIRONMENTS, ids=str)
def test_quantising_in_any_float_environment(
    setting: Setting, float_environment: FloatEnvironment, rng: np.random.Generator
) -> None:
    values = normal_input(rng, 33, 96)
    values[:3] = np.ldexp(values[:3], -124)
    usual = mo.Q4_0Matrix.quantize(values)
    with float_environment.within(setting):
        unusual = mo.Q4_0Matrix.quantize(values)
        after_quantize = float_environment.get()
        dequantized = unusual.dequantize()
        after_dequantize = float_environment.get()
    assert after_quantize == after_dequantize == setting
    np.testing.assert_array_equal(unusual.blocks, usual.blocks)
    assert_bits_equal(dequantized, usual.dequantize())
