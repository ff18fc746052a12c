"""The weights of a projection: a pair of Q4_0 matrices, and enough copies to be cold in turn."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.random import default_rng
from numpy.typing import NDArray

import mlxops as mo

Float32 = NDArray[np.float32]


class Weights:
    """Two random [N, K] matrices: all nibbles, and scales as trained weights have them."""

    def __init__(self, N: int, K: int, cold_bytes: int) -> None:
        rng = default_rng(20230815)
        blocks = rng.integers(0, 256, (2, N, K // 32, 18), np.uint8)
        scales = rng.choice([-1, 1], (2, N, K // 32)) * rng.uniform(0.002, 0.02, (2, N, K // 32))
        blocks[..., :2] = scales.astype("<f2")[..., None].view(np.uint8)
        self.N = N
        self.K = K
        self.cold_bytes = cold_bytes
        self.blocks = blocks.reshape(2, N, -1)

    @property
    def pair_bytes(self) -> int:
        """The bytes of the two matrices, as Q4_0."""
        return self.blocks.nbytes

    def copies(self, pair_bytes: int) -> int:
        """How many copies of a pair that takes so many bytes exceed the caches."""
        return self.cold_bytes // pair_bytes + 1

    @cached_property
    def q4_0(self) -> list[tuple[mo.Q4_0Matrix, mo.Q4_0Matrix]]:
        """The copies of the pair, each in memory of its own."""
        copies = self.copies(self.pair_bytes)
        together = np.tile(self.blocks.reshape(2 * self.N, -1), (copies, 1))
        matrix = mo.Q4_0Matrix.from_blocks(together, (len(together), self.K))
        rows = [matrix[first : first + self.N] for first in range(0, len(together), self.N)]
        return list(zip(rows[::2], rows[1::2], strict=True))

    @cached_property
    def dense(self) -> list[Float32]:
        """The copies of the pair as float32, each of shape [2, N, K]."""
        pair = self.q4_0[0]
        values = np.stack([matrix.dequantize() for matrix in pair])
        return list(np.tile(values, (self.copies(values.nbytes), 1, 1, 1)))
