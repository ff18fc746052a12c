"""Every operation on the CUDA device in small awkward shapes, against the CPU device.

For a machine with a GPU, under compute-sanitizer too (gpu_check.sh): a process of its own, quick.
"""

from __future__ import annotations

import itertools

import numpy as np

import mlxops as mo
from mlxops import _core
from mlxops.testing import assert_bits_equal
from q4_0_data import normal_input, random_blocks


def check_projections(rng: np.random.Generator, N: int, K: int, m: int) -> None:
    """One and two weights, the whole and a slice of it."""
    a, b = (mo.Q4_0Matrix.from_blocks(random_blocks(rng, N, K), (N, K)) for _ in range(2))
    x = normal_input(rng, m, K)
    results = mo.fused_dual_proj_q4_0(a, b, x, device="cuda")
    for weight, result in zip((a, b), results, strict=True):
        expected = mo.mul_mv_q4_0(weight, x, device="cpu")
        assert_bits_equal(result, expected)
        assert_bits_equal(mo.mul_mv_q4_0(weight, x, device="cuda"), expected)
    rows = mo.mul_mv_q4_0(a[N // 2 :], x, device="cuda")
    assert_bits_equal(rows, mo.mul_mv_q4_0(a[N // 2 :], x, device="cpu"))


def check_variants(rng: np.random.Generator) -> int:
    """Every kernel, in shapes that end within its steps and its threadgroups; how many."""
    variants = _core.projection_variants()
    for variant, inputs in variants.items():
        _core.force_projection_variant(variant)
        for N, K in ((1, 64), (33, 1024), (65, 1088), (17, 8256), (200, 4544)):
            for m in (inputs, inputs + 1):
                check_projections(rng, N, K, m)
        _core.force_projection_variant(None)
    return len(variants)


def check_split(rng: np.random.Generator, seq: int, spans: tuple[int, int, int]) -> None:
    """Also at an address that is no multiple of 16."""
    memory = rng.standard_normal(seq * sum(spans) + 1, np.float32)
    for offset in (0, 1):
        qkv = memory[offset : offset + seq * sum(spans)].reshape(seq, -1)
        parts = mo.qkv_split(qkv, *spans, device="cuda")
        for part, expected in zip(parts, np.split(qkv, np.cumsum(spans)[:2], axis=1), strict=True):
            assert_bits_equal(part, np.ascontiguousarray(expected))


def main() -> None:
    """Check them all, and say how many there were."""
    rng = np.random.default_rng(11)
    shapes = list(itertools.product((1, 8, 33, 1029), (32, 96, 544, 4096), (1, 2, 3, 4, 7, 8, 17)))
    splits = [(1, (1, 1, 1)), (3, (8, 8, 64)), (70000, (1, 1, 2)), (128, (256, 256, 2048))]
    for N, K, m in shapes:
        check_projections(rng, N, K, m)
    n_variants = check_variants(rng)
    for seq, spans in splits:
        check_split(rng, seq, spans)
    gpu = next(device for device in mo.devices() if device.name == "cuda")
    print(f"{gpu.description}: all bits are equal in {len(shapes)} shapes, with each of")
    print(f"{n_variants} kernels in 10 more, and in {len(splits)} splits")


if __name__ == "__main__":
    main()
