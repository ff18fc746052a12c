"""The shipped shaders on the simulator, without the rest of the package: every bit as the canonical
order says, in both orders of threads, in buffers of exactly the right length."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import metal_sim
from canonical_reference import CanonicalReference
from metal_sim.harness import Array, Harness, Job

SHADERS = metal_sim.HOME.parents[1] / "shaders"
EVERY_CONSTANT = {700: 1, 701: 1, 702: 1}


@pytest.fixture(scope="module")
def canonical(tmp_path_factory: pytest.TempPathFactory) -> CanonicalReference:
    return CanonicalReference(tmp_path_factory.mktemp("canonical"))


def random_blocks(rng: np.random.Generator, N: int, K: int) -> Array:
    blocks = rng.integers(0, 256, (N, K // 32, 18), np.uint8)
    scales = rng.normal(0, 1, (N, K // 32)).astype(np.float16)
    blocks[:, :, :2] = scales[..., None].view(np.uint8)
    return blocks.reshape(N, K // 32 * 18)


def projection(kernel: str, weights: Sequence[Array], x: Array, constants: dict[int, int]) -> Job:
    """Arguments, parameters and grid as the interface of the kernels fixes them."""
    (N, row_bytes), (m, K) = weights[0].shape, x.shape
    assert row_bytes == K // 32 * 18
    outputs = [np.full((m, N), np.nan, np.float32) for _ in weights]
    parameters = struct.pack("<7q2I", K, N, 1, K, 1, N, m, 1, 1)
    arguments: dict[int, Array | bytes] = dict(enumerate([*weights, x, *outputs, parameters]))
    source = "fused_dual_proj_q4_0" if len(weights) == 2 else "mul_mv_q4_0"
    text = metal_sim.inline_includes(SHADERS / f"{source}.metal")
    grid = ((N + 7) // 8 * 8, 8 * m, 1)
    return Job(text, kernel, grid, (8, 8, 1), arguments, constants=constants)


def assert_same_bits(got: object, expected: Array) -> None:
    assert isinstance(got, np.ndarray)
    assert np.array_equal(got.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("constants", [{}, EVERY_CONSTANT], ids=["no constants", "constants"])
@pytest.mark.parametrize(("N", "K", "m"), [(1, 32, 1), (8, 64, 3), (9, 544, 2), (33, 1024, 1)])
def test_projections(
    N: int,
    K: int,
    m: int,
    constants: dict[int, int],
    reverse: bool,
    harness: Harness,
    control: metal_sim.Control,
    canonical: CanonicalReference,
) -> None:
    rng = np.random.default_rng([N, K, m])
    a, b = random_blocks(rng, N, K), random_blocks(rng, N, K)
    x = rng.normal(0, 1, (m, K)).astype(np.float32)
    control.set_reverse(reverse)
    single = projection("kernel_mul_mv_q4_0_f32", [a], x, constants)
    dual = projection("kernel_fused_dual_proj_q4_0_f32", [a, b], x, constants)
    assert harness.run(single) == ""
    assert harness.run(dual) == ""
    assert control.reports() == ""
    assert_same_bits(single.arguments[2], canonical(a, x))
    assert_same_bits(dual.arguments[3], canonical(a, x))
    assert_same_bits(dual.arguments[4], canonical(b, x))


def test_large_projection(
    harness: Harness, control: metal_sim.Control, canonical: CanonicalReference
) -> None:
    rng = np.random.default_rng(1)
    weight = random_blocks(rng, 4096, 4096)
    x = rng.normal(0, 1, (1, 4096)).astype(np.float32)
    job = projection("kernel_mul_mv_q4_0_f32", [weight], x, {})
    assert harness.run(job) == ""
    assert control.threadgroups() == 512
    assert_same_bits(job.arguments[2], canonical(weight, x))


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("spans", [(256, 256, 2048), (1, 2, 3), (7, 5, 1)])
def test_qkv_split(
    spans: tuple[int, int, int], reverse: bool, harness: Harness, control: metal_sim.Control
) -> None:
    seq, channels = 5, sum(spans)
    qkv = np.arange(seq * channels, dtype=np.uint32).reshape(seq, channels)
    parts = [np.full((seq, span), 0xFFFFFFFF, np.uint32) for span in spans]
    parameters = struct.pack("<5I", seq, *spans, channels)
    job = Job(
        metal_sim.inline_includes(SHADERS / "qkv_split.metal"),
        "qkv_split_f32",
        (channels, seq, 1),
        (min(256, channels), 1, 1),
        dict(enumerate([qkv, *parts, parameters])),
    )
    control.set_reverse(reverse)
    assert harness.run(job) == ""
    assert control.reports() == ""
    for part, expected in zip(parts, np.split(qkv, np.cumsum(spans)[:2], axis=1), strict=True):
        assert np.array_equal(part, expected)


def test_a_short_weight_is_seen_where_it_is_read(
    harness: Harness, control: metal_sim.Control
) -> None:
    rng = np.random.default_rng(2)
    weight, x = random_blocks(rng, 8, 64), np.ones((1, 64), np.float32)
    job = projection("kernel_mul_mv_q4_0_f32", [weight], x, {})
    job.arguments = {**job.arguments, 0: weight.reshape(-1)[:-1].copy()}
    said = harness.run(job)
    assert "proj_q4_0.h:" in said
    assert "0 bytes past the end of buffer 0 (weight), which has 287 bytes" in said


def test_errors_name_the_header(harness: Harness, tmp_path: Path) -> None:
    (tmp_path / "a.h").write_text("\nfloat nonsense(\n")
    (tmp_path / "b.metal").write_text('#include "a.h"\n\nmore nonsense\n')
    text = metal_sim.inline_includes(tmp_path / "b.metal")
    said = harness.run(Job(text, "f", (1, 1, 1), (1, 1, 1)))
    assert "b.metal:3" in said or "a.h:2" in said
