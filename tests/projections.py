"""Many projections in one run of tests/c/run_projections.c, which may be under an emulator."""

import os
import subprocess
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from canonical_reference import CanonicalReference
from mlxops.testing import assert_bits_equal
from q4_0_data import SCALES, normal_input, random_blocks, set_scale, vanishing

GOLDEN = np.load(Path(__file__).parent / "data" / "canonical_order.npz")


class Projection(NamedTuple):
    """One weight (mul_mv_q4_0) or two (fused_dual_proj_q4_0), x, and what each result must be."""

    weights: list[npt.NDArray[np.uint8]]
    x: npt.NDArray[np.float32]
    expected: list[npt.NDArray[np.float32]]
    threads: int = 1

    def encode(self) -> bytes:
        """The projection as the program reads it."""
        m, K = self.x.shape
        header = np.array([len(self.weights), len(self.weights[0]), K, m, self.threads], np.int64)
        weights = b"".join(blocks.tobytes() for blocks in self.weights)
        return header.tobytes() + weights + self.x.tobytes()


class Run(NamedTuple):
    """What a run of the program told: the CPU device, and what is wrong with the environment."""

    device: str
    complaints: str


def run(
    command: Sequence[str | Path], projections: Iterable[Projection], **environment: str
) -> Run:
    """Run the program, and assert that all results are as expected."""
    projections = list(projections)
    process = subprocess.run(
        command,
        input=b"".join(projection.encode() for projection in projections),
        env={**os.environ, "MLXOPS_CPU_ISA": "", **environment},
        capture_output=True,
        timeout=120,
    )
    told = process.stderr.decode()
    assert process.returncode == 0, told
    results = np.frombuffer(process.stdout, np.float32)
    expected = [result for projection in projections for result in projection.expected]
    assert results.size == sum(result.size for result in expected)
    first = 0
    for result in expected:
        assert_bits_equal(results[first : first + result.size].reshape(result.shape), result)
        first += result.size
    # (An emulator can have warnings of its own before.)
    lines = [line for line in told.splitlines() if not line.startswith("qemu")]
    return Run(lines[0], "\n".join(lines[1:]))


def golden() -> list[Projection]:
    """The nine stored cases, as single and as dual projections."""
    projections = []
    for name in sorted({key.split("/")[0] for key in GOLDEN}):
        blocks, x = GOLDEN[f"{name}/blocks"], GOLDEN[f"{name}/x"]
        expected = GOLDEN[f"{name}/bits"].view(np.float32)
        projections.append(Projection([blocks], x, [expected]))
        swapped = np.ascontiguousarray(blocks[::-1])
        projections.append(Projection([blocks, swapped], x, [expected, expected[:, ::-1]]))
    return projections


def tails(
    rng: np.random.Generator, reference: CanonicalReference, every: int = 1
) -> list[Projection]:
    """Every tail in K and many in N with every m, or only one in ``every`` of them."""
    projections = []
    for n, (n_blocks, m) in enumerate(product(range(1, 35), range(1, 18))):
        N, K = 1 + (5 * n_blocks + 3 * m) % 37, 32 * n_blocks
        if n % every:
            continue
        weights = [random_blocks(rng, N, K) for _ in range(1 + n % 2)]
        x = normal_input(rng, m, K)
        x[rng.random(x.shape) < 0.01] = -0.0
        expected = [reference(blocks, x) for blocks in weights]
        projections.append(Projection(weights, x, expected, threads=1 + n % 3))
    return projections


def special_values(rng: np.random.Generator, reference: CanonicalReference) -> list[Projection]:
    """Every kind of scale meets zeros, subnormals, infinities, NaNs and the largest values in x.

    And zeros of both signs result.
    """
    tiny, largest = np.float32(2.0**-149), np.finfo(np.float32).max
    values = np.array([0, tiny, 2.0**-126 - tiny, 2.0**-126, largest, np.inf, np.nan], np.float32)
    projections = []
    for n, (n_blocks, d) in enumerate(product((1, 2, 3, 17), SCALES.values())):
        blocks = random_blocks(rng, 5, 32 * n_blocks)
        set_scale(blocks, d, int(rng.integers(n_blocks)))
        shape = (len(values), 32 * n_blocks)
        some = np.where(rng.random(shape) < 0.1, values[:, None], normal_input(rng, *shape))
        alone = values[:, None] * rng.choice(np.array([1, -1], np.float32), shape)
        to_subnormals = np.float32(2.0**-130) * normal_input(rng, 2, shape[1])
        x = np.concatenate([some, alone, to_subnormals])
        for chosen in (x, rng.permutation(x)[: 1 + n % 8]):
            projections.append(Projection([blocks], chosen, [reference(blocks, chosen)]))
    for n_blocks, m in product((16, 17, 23, 31, 33), range(1, 9)):
        blocks, x = vanishing(rng, 9, 32 * n_blocks, m)
        projections.append(Projection([blocks], x, [reference(blocks, x)]))
    return projections


def shared(rng: np.random.Generator, reference: CanonicalReference) -> list[Projection]:
    """Enough work for several threads, which then meet at rows of any number."""
    projections = []
    for m, threads in product((1, 2, 5, 8), (1, 2, 3, 4)):
        weights = [random_blocks(rng, 251, 1056) for _ in range(2)]
        x = normal_input(rng, m, 1056)
        expected = [reference(blocks, x) for blocks in weights]
        projections.append(Projection(weights, x, expected, threads))
    return projections
