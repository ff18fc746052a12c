"""Small calls of every operation on a device, and what they must give."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

import mlxops as mo
from mlxops.testing import assert_bits_equal
from q4_0_data import random_blocks

Results = list[npt.NDArray[np.float32]]
Operation = Callable[[str], Results]


def operations(m: int = 3) -> dict[str, Operation]:
    """Each operation by its name, for a device."""
    rng = np.random.default_rng(7)
    a, b = (mo.Q4_0Matrix.from_blocks(random_blocks(rng, 11, 96), (11, 96)) for _ in range(2))
    x = rng.standard_normal((m, 96), np.float32)
    qkv = rng.standard_normal((m, 96), np.float32)
    outs = [np.empty((m, 11), np.float32) for _ in range(2)]
    return {
        "mul_mv_q4_0": lambda device: [mo.mul_mv_q4_0(a, x, device=device)],
        "mul_mv_q4_0 one row": lambda device: [mo.mul_mv_q4_0(a, x[0], device=device)],
        "fused_dual_proj_q4_0": lambda device: [*mo.fused_dual_proj_q4_0(a, b, x, device=device)],
        "fused_dual_proj_q4_0 out": lambda device: [
            *mo.fused_dual_proj_q4_0(a, b, x, out=outs, device=device)
        ],
        "qkv_split": lambda device: [*mo.qkv_split(qkv, 7, 19, 70, device=device)],
        "qkv_split wide": lambda device: [*mo.qkv_split(qkv, 8, 24, 64, device=device)],
    }


NAMES = list(operations())


def assert_works(operation: Operation, device: str = "metal") -> None:
    """The device gives the bits of the CPU."""
    expected = [result.copy() for result in operation("cpu")]
    for result, other in zip(operation(device), expected, strict=True):
        assert_bits_equal(result, other)
