"""More than 2^31 and 2^32 elements: offsets, in the kernels and between command buffers.

Only a few threadgroups are computed, and what nobody touches takes no memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import metal_sim
import mlxops as mo
from metal_device.c_api import Encoder
from metal_device.conftest import WorkLimits
from metal_device.memory import sparse, sparse_floats
from mlxops import _core
from mlxops.testing import assert_bits_equal
from q4_0_data import normal_input, random_blocks


@pytest.fixture(autouse=True)
def large_machine(control: metal_sim.Control, work_limits: WorkLimits) -> None:
    """A GPU that takes such buffers, everything in one command buffer, a few threadgroups of it."""
    work_limits.set(2.0**60, 2.0**60)
    control.set_max_buffer_length(2**40)
    control.set_sampled_threadgroups(5)


@pytest.fixture(params=[None, "s1_r2_m8_d4_g8", "s4_r2_m8_d1_g8", "s4_r1_m1_d1_g8"], ids=str)
def variant(request: pytest.FixtureRequest) -> Iterator[None]:
    """The kernel that is chosen, or one of those that keep the input in threadgroup memory."""
    _core.force_projection_variant(request.param)
    yield
    _core.force_projection_variant(None)


@pytest.mark.usefixtures("variant")
def test_a_weight_of_more_than_2_33_elements(rng: np.random.Generator) -> None:
    N, K = 80_000, 2**17
    blocks = sparse(N * (K // 32) * 18).reshape(N, K // 32 * 18)
    assert N * K > 2**33
    assert blocks.nbytes > 2**32
    for row in (0, N - 1):
        blocks[row] = random_blocks(rng, 1, K)
    x, out = sparse_floats(1, K), sparse_floats(1, N)
    x[:] = normal_input(rng, 1, K)
    with Encoder("metal") as encoder:
        encoder.mul_mv_q4_0(blocks, x, out)
        encoder.commit()
        encoder.wait()
    for row in (0, N - 1):
        weight = mo.Q4_0Matrix.from_blocks(blocks[row], (1, K))
        assert_bits_equal(out[:, row : row + 1], mo.mul_mv_q4_0(weight, x, device="cpu"))


@pytest.mark.usefixtures("variant")
@pytest.mark.parametrize("work", [2.0**60, 2.0**36], ids=["one command buffer", "several"])
def test_an_input_and_a_result_of_more_than_2_32_elements(
    work: float, work_limits: WorkLimits, rng: np.random.Generator
) -> None:
    work_limits.set(work, work)
    N, K, m = 64, 64, 2**26 + 3
    blocks = sparse(N * K // 32 * 18).reshape(N, K // 32 * 18)
    blocks[:] = random_blocks(rng, N, K)
    x, out = sparse_floats(m, K), sparse_floats(m, N)
    assert x.size > 2**32
    assert out.size > 2**32
    x[0], x[-1] = normal_input(rng, 2, K)
    with Encoder("metal") as encoder:
        encoder.mul_mv_q4_0(blocks, x, out)
        encoder.commit()
        encoder.wait()
    weight = mo.Q4_0Matrix.from_blocks(blocks, (N, K))
    for row in (0, m - 1):
        expected = mo.mul_mv_q4_0(weight, x[row], device="cpu")
        for columns in (slice(0, 4), slice(N - 4, N)):  # of the first and the last threadgroup
            if (row == 0) == (columns.start == 0):
                assert_bits_equal(out[row, columns], expected[columns])


@pytest.mark.parametrize("work", [2.0**60, 2.0**30], ids=["one command buffer", "several"])
@pytest.mark.parametrize("spans", [(1021, 3, 1025), (1024, 512, 516)], ids=["narrow", "wide"])
def test_a_split_of_more_than_2_32_elements(
    spans: tuple[int, int, int], work: float, work_limits: WorkLimits, rng: np.random.Generator
) -> None:
    work_limits.set(work, work)
    seq, channels = 2**21 + 5, sum(spans)
    qkv = sparse_floats(seq, channels)
    assert qkv.size > 2**32
    qkv[0], qkv[-1] = rng.standard_normal((2, channels), np.float32)
    outs = [sparse_floats(seq, span) for span in spans]
    with Encoder("metal") as encoder:
        encoder.qkv_split(qkv, spans, outs)
        encoder.commit()
        encoder.wait()
    assert_bits_equal(outs[0][0, :64], qkv[0, :64])
    assert_bits_equal(outs[2][-1, -1:], qkv[-1, -1:])
