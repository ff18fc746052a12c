"""The encoder of the C API, on both devices: order, dependencies, and use at the wrong time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

import mlxops as mo
from metal_device.c_api import Encoder
from metal_device.conftest import Control, WorkLimits
from metal_device.memory import sparse, sparse_floats
from mlxops.testing import assert_bits_equal
from q4_0_data import normal_input, random_blocks


def blocks_in_pages(rng: np.random.Generator, N: int, K: int) -> npt.NDArray[np.uint8]:
    """Random blocks [N, K / 32 * 18] that begin at a page."""
    blocks = sparse(N * K // 32 * 18).reshape(N, K // 32 * 18)
    blocks[:] = random_blocks(rng, N, K)
    return blocks


def floats_in_pages(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """A copy that begins at a page."""
    array = sparse_floats(*values.shape)
    array[:] = values
    return array


@pytest.mark.parametrize("work", [2.0**30, 1.0], ids=["one command buffer", "many"])
def test_an_operation_uses_the_result_of_an_earlier_one(
    work: float, device: str, work_limits: WorkLimits, rng: np.random.Generator
) -> None:
    """A projection, a split of its result, and a projection of a part."""
    work_limits.set(work, work)
    wqkv, wo = blocks_in_pages(rng, 160, 96), blocks_in_pages(rng, 7, 64)
    x = floats_in_pages(normal_input(rng, 5, 96))
    qkv, q, k, v, y = (sparse_floats(5, n) for n in (160, 64, 32, 64, 7))
    with Encoder(device) as encoder:
        encoder.mul_mv_q4_0(wqkv, x, qkv)
        encoder.qkv_split(qkv, (64, 32, 64), (q, k, v))
        encoder.mul_mv_q4_0(wo, v, y)
        assert not y.any()  # nothing runs before the commit
        encoder.commit()
        encoder.wait()
        encoder.wait()
    fused = mo.Q4_0Matrix.from_blocks(wqkv, (160, 96))
    expected = mo.mul_mv_q4_0(fused, x, device="cpu")
    parts = mo.qkv_split(expected, 64, 32, 64, device="cpu")
    for result, other in zip((qkv, q, k, v), (expected, *parts), strict=True):
        assert_bits_equal(result, other)
    out = mo.Q4_0Matrix.from_blocks(wo, (7, 64))
    assert_bits_equal(y, mo.mul_mv_q4_0(out, parts[2], device="cpu"))


def test_several_operations_are_one_command_buffer(
    control: Control, rng: np.random.Generator
) -> None:
    weight, x = blocks_in_pages(rng, 9, 64), floats_in_pages(normal_input(rng, 2, 64))
    outs = [sparse_floats(2, 9) for _ in range(3)]

    def run() -> None:
        with Encoder("metal") as encoder:
            for out in outs:
                encoder.mul_mv_q4_0(weight, x, out)
            encoder.commit()
            encoder.wait()

    run()
    control.fail_call(0)
    run()
    # A wrapper for each of five borrowed buffers; commandBuffer, computeCommandEncoder, commit.
    assert control.call_count() == 5 + 3


def test_what_is_not_committed_is_discarded(device: str, rng: np.random.Generator) -> None:
    weight, x = blocks_in_pages(rng, 9, 64), floats_in_pages(normal_input(rng, 2, 64))
    out = sparse_floats(2, 9)
    with Encoder(device) as encoder:
        encoder.mul_mv_q4_0(weight, x, out)
    assert not out.any()


def test_freed_without_a_wait(device: str, control: Control, rng: np.random.Generator) -> None:
    weight, x = blocks_in_pages(rng, 9, 64), floats_in_pages(normal_input(rng, 2, 64))
    out = sparse_floats(2, 9)
    with Encoder(device) as encoder:
        encoder.mul_mv_q4_0(weight, x, out)
        encoder.commit()
    assert control.in_flight() == 0


def test_an_empty_encoder(device: str) -> None:
    with Encoder(device) as encoder:
        encoder.commit()
        encoder.wait()


def test_use_at_the_wrong_time(device: str, rng: np.random.Generator) -> None:
    weight, x = blocks_in_pages(rng, 9, 64), floats_in_pages(normal_input(rng, 2, 64))
    out = sparse_floats(2, 9)
    with Encoder(device) as encoder:
        with pytest.raises(RuntimeError, match="commit"):
            encoder.wait()
        encoder.mul_mv_q4_0(weight, x, out)
        encoder.commit()
        with pytest.raises(RuntimeError, match="committed"):
            encoder.mul_mv_q4_0(weight, x, out)
        with pytest.raises(RuntimeError, match="committed"):
            encoder.commit()
        encoder.wait()
    assert out.any()


def test_what_is_wrong_is_not_recorded(device: str, rng: np.random.Generator) -> None:
    """The encoder goes on as if the operation that failed had not been called."""
    weight, x = blocks_in_pages(rng, 9, 64), floats_in_pages(normal_input(rng, 2, 64))
    out = sparse_floats(2, 9)
    with Encoder(device) as encoder:
        with pytest.raises(RuntimeError, match="overlaps"):
            encoder.mul_mv_q4_0(weight, x, x.ravel()[:18].reshape(2, 9))
        with pytest.raises(RuntimeError, match="shape"):
            encoder.mul_mv_q4_0(weight, x, sparse_floats(2, 8))
        encoder.mul_mv_q4_0(weight, x, out)
        encoder.commit()
        encoder.wait()
    matrix = mo.Q4_0Matrix.from_blocks(weight, (9, 64))
    assert_bits_equal(out, mo.mul_mv_q4_0(matrix, x, device="cpu"))


def test_many_operations_are_more_than_one_command_buffer(
    control: Control, work_limits: WorkLimits, rng: np.random.Generator
) -> None:
    """Each fills 2 / 5 of one: two go together."""
    weight, x = blocks_in_pages(rng, 9, 64), floats_in_pages(normal_input(rng, 2, 64))
    outs = [sparse_floats(2, 9) for _ in range(7)]
    work_limits.set(2.5 * 2 * 9 * 64, 1)
    with Encoder("metal") as encoder:
        for out in outs:
            encoder.mul_mv_q4_0(weight, x, out)
        control.fail_call(0)
        encoder.commit()
        encoder.wait()
    # A wrapper for each of nine borrowed buffers; four times three for the command buffers.
    assert control.call_count() == 9 + 4 * 3
