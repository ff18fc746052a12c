"""What the Metal device makes of memory: shared without a copy, in parts, or copied."""

from __future__ import annotations

import gc

import numpy as np
import numpy.typing as npt
import pytest

import metal_sim
import mlxops as mo
from metal_device.memory import PAGE, mapped
from metal_device.operations import NAMES, assert_works, operations
from mlxops import _core
from mlxops.testing import assert_bits_equal
from q4_0_data import normal_input, random_blocks
from raising import raises


def mapped_matrices(
    rng: np.random.Generator, count: int, N: int, K: int
) -> tuple[list[mo.Q4_0Matrix], list[npt.NDArray[np.uint8]]]:
    """Matrices one after the other in one mapping, as in a GGUF file, and their blocks."""
    blocks = [random_blocks(rng, N, K) for _ in range(count)]
    stride = -(-blocks[0].nbytes // 32) * 32
    memory = mapped(count * stride)
    for i, each in enumerate(blocks):
        memory[i * stride : i * stride + each.nbytes] = each.tobytes()
    buffer = _core.Buffer(memory)
    matrices = [_core.Q4_0Matrix._from_buffer(buffer, i * stride, (N, K)) for i in range(count)]
    return matrices, blocks


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_left_over(name: str, control: metal_sim.Control) -> None:
    operation = operations()[name]
    operation("metal")
    gc.collect()
    mo.clear_cache()
    before = control.live_objects()
    for _ in range(5):
        assert_works(operation)
    gc.collect()
    mo.clear_cache()
    assert control.live_objects() == before, control.live_objects_text()


def test_a_recycled_buffer_keeps_its_wrapper(control: metal_sim.Control) -> None:
    operation = operations()["mul_mv_q4_0 one row"]
    for _ in range(3):
        operation("metal")
    control.fail_call(0)
    operation("metal")
    # commandBuffer, computeCommandEncoder, commit: no buffer had to be made
    assert control.call_count() == 3


def test_a_mapping_is_shared_as_a_whole(
    control: metal_sim.Control, rng: np.random.Generator
) -> None:
    matrices, blocks = mapped_matrices(rng, 4, 33, 96)
    x = normal_input(rng, 2, 96)
    mo.mul_mv_q4_0(matrices[0], x, device="metal")
    control.fail_call(0)
    results = []
    for matrix in matrices:
        results.append(mo.mul_mv_q4_0(matrix, x, device="metal").copy())
    # commandBuffer, computeCommandEncoder and commit for each: no buffer had to be made
    assert control.call_count() == 3 * len(matrices)
    for result, each in zip(results, blocks, strict=True):
        own = mo.Q4_0Matrix.from_blocks(each, (33, 96))
        assert_bits_equal(result, mo.mul_mv_q4_0(own, x, device="cpu"))


def test_a_mapping_that_is_too_large_is_used_in_parts(
    control: metal_sim.Control, rng: np.random.Generator
) -> None:
    N, K = 100, 544
    matrices, _ = mapped_matrices(rng, 9, N, K)
    control.set_max_buffer_length(4 * PAGE)
    assert matrices[0].nbytes < 3 * PAGE < sum(matrix.nbytes for matrix in matrices)
    x = normal_input(rng, 3, K)
    expected = [mo.mul_mv_q4_0(matrix, x, device="cpu") for matrix in matrices]
    mo.mul_mv_q4_0(matrices[0], x, device="metal")
    gc.collect()
    mo.clear_cache()
    control.start_counting_objects()
    for i in range(8):
        a, b = mo.fused_dual_proj_q4_0(matrices[i], matrices[i + 1], x, device="metal")
        assert_bits_equal(a, expected[i])
        assert_bits_equal(b, expected[i + 1])
        part = matrices[i][7:60]
        assert_bits_equal(mo.mul_mv_q4_0(part, x, device="metal"), expected[i][:, 7:60])
    del a, b
    gc.collect()
    mo.clear_cache()
    assert control.live_objects() == 0, control.live_objects_text()


def test_a_mapping_that_does_not_begin_at_a_page_is_copied(
    control: metal_sim.Control, rng: np.random.Generator
) -> None:
    """As where the system's pages are smaller than those that Metal asks for."""
    blocks = random_blocks(rng, 33, 96)
    memory = mapped(PAGE + blocks.nbytes)[4096:]
    memory[32 : 32 + blocks.nbytes] = blocks.tobytes()
    matrix = _core.Q4_0Matrix._from_buffer(_core.Buffer(memory), 32, (33, 96))
    x = normal_input(rng, 2, 96)
    assert_bits_equal(
        mo.mul_mv_q4_0(matrix, x, device="metal"), mo.mul_mv_q4_0(matrix, x, device="cpu")
    )
    assert control.reports() == ""


def test_a_matrix_that_is_too_large_is_refused_and_its_slices_are_not(
    control: metal_sim.Control, rng: np.random.Generator
) -> None:
    matrices, _ = mapped_matrices(rng, 1, 300, 544)
    control.set_max_buffer_length(2 * PAGE)
    x = normal_input(rng, 1, 544)
    with raises(mo.DeviceError, str(matrices[0].nbytes), str(2 * PAGE), "slice"):
        mo.mul_mv_q4_0(matrices[0], x, device="metal")
    halves = [mo.mul_mv_q4_0(matrices[0][i : i + 50], x, device="metal") for i in range(0, 300, 50)]
    assert_bits_equal(np.concatenate(halves, axis=1), mo.mul_mv_q4_0(matrices[0], x, device="cpu"))


def test_an_own_matrix_that_is_too_large(
    control: metal_sim.Control, rng: np.random.Generator
) -> None:
    weight = mo.Q4_0Matrix.from_blocks(random_blocks(rng, 300, 544), (300, 544))
    control.set_max_buffer_length(3 * PAGE)
    x = normal_input(rng, 1, 544)
    with raises(mo.DeviceError, "slice"):
        mo.mul_mv_q4_0(weight, x, device="metal")
    assert_bits_equal(
        mo.mul_mv_q4_0(weight[100:200], x, device="metal"),
        mo.mul_mv_q4_0(weight[100:200], x, device="cpu"),
    )


def test_an_array_that_is_too_large(control: metal_sim.Control, rng: np.random.Generator) -> None:
    """The copy of an array may take more pages than the array, and that is too many here."""
    weight = mo.Q4_0Matrix.from_blocks(random_blocks(rng, 3, 544), (3, 544))
    x = normal_input(rng, 70, 544)
    control.set_max_buffer_length(x.nbytes // PAGE * PAGE)
    with raises(mo.DeviceError, str(x.nbytes), "slice"):
        mo.mul_mv_q4_0(weight, x, device="metal")
    assert_bits_equal(
        mo.mul_mv_q4_0(weight, x[:9], device="metal"), mo.mul_mv_q4_0(weight, x[:9], device="cpu")
    )


def test_an_array_whose_memory_is_rounded_up_to_too_much(
    control: metal_sim.Control, rng: np.random.Generator
) -> None:
    """17 pages would do, but memory comes in sizes, and the next one is 18 pages."""
    weight = mo.Q4_0Matrix.from_blocks(random_blocks(rng, 3, 32), (3, 32))
    x = normal_input(rng, 17 * PAGE // 128, 32)
    control.set_max_buffer_length(17 * PAGE)
    with raises(mo.DeviceError, str(x.nbytes), "slice"):
        mo.mul_mv_q4_0(weight, x, device="metal")
    mo.clear_cache()


@pytest.mark.parametrize("offset", [0, 1, 2, 3, 4, 5, 8])
def test_arrays_at_any_address(offset: int, rng: np.random.Generator) -> None:
    """The wide split needs 16 bytes; the narrow one takes what is left."""
    memory = np.zeros(4 * 64 + 16, np.float32)
    qkv = memory[offset : offset + 4 * 64].reshape(4, 64)
    qkv[:] = rng.standard_normal((4, 64), np.float32)
    outs = [np.zeros((4, n), np.float32) for n in (8, 16, 40)]
    for result, expected in zip(
        mo.qkv_split(qkv, 8, 16, 40, out=outs, device="metal"),
        np.split(qkv, [8, 24], axis=1),
        strict=True,
    ):
        assert_bits_equal(result, np.ascontiguousarray(expected))


def test_freed_memory_is_kept_and_given_back() -> None:
    mo.clear_cache()
    assert mo.cache_info().nbytes == 0
    weight = mo.Q4_0Matrix.quantize(np.ones((64, 64), np.float32))
    result = mo.mul_mv_q4_0(weight, np.ones((100, 64), np.float32), device="cpu")
    kept = mo.cache_info().nbytes
    del result
    assert mo.cache_info().nbytes >= kept + 100 * 64 * 4
    assert mo.cache_info().nbytes <= mo.cache_info().limit
    mo.clear_cache()
    assert mo.cache_info().nbytes == 0
