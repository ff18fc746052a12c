"""The self-test: every kernel on every device, on fixed inputs, down to the last bit.

The results are compared with those of the CPU device and with digests stored here, so that two
machines can be compared without moving data. The inputs are made from integers alone and do not
depend on NumPy's random generators.
"""

from __future__ import annotations

import argparse
import hashlib
import platform
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

import mlxops as mo

Float32 = NDArray[np.float32]
Results = tuple[Float32, ...]

TIMED_RUNS = 5


@dataclass(frozen=True)
class Case:
    """A kernel, its shape, and the digest of its results."""

    kernel: str
    shape: tuple[int, ...]
    digest: str

    @property
    def operation(self) -> Callable[[str], Results]:
        """The case with its inputs made, to be run on a device."""
        return qkv_split(*self.shape) if self.kernel == "qkv_split" else project(self)

    @property
    def label(self) -> str:
        """The kernel and its shape, for people."""
        names = ("seq", "q_sp", "k_sp", "v_sp") if self.kernel == "qkv_split" else ("N", "K", "m")
        sizes = " ".join(f"{name}={size}" for name, size in zip(names, self.shape, strict=True))
        return f"{self.kernel} {sizes}"


def words(n: int, seed: int) -> NDArray[np.uint64]:
    """n scrambled words: the finaliser of splitmix64 over a counter."""
    with np.errstate(over="ignore"):
        z = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z += np.uint64(seed)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        scrambled: NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return scrambled


def weight(n: int, k: int, seed: int) -> mo.Q4_0Matrix:
    """A matrix with every nibble, and scales of both signs from 2^-9 to 2^-5."""
    blocks = (words(n * (k // 32) * 18, seed) >> np.uint64(56)).astype(np.uint8).reshape(-1, 18)
    blocks[:, 1] = (blocks[:, 1] & 0x8F) | 0x18
    return mo.Q4_0Matrix.from_blocks(blocks, (n, k))


def activations(*shape: int) -> Float32:
    """Multiples of 2^-21 between -4 and 4: float32 holds them exactly."""
    count = int(np.prod(shape))
    integers = (words(count, 3) >> np.uint64(40)).astype(np.int64) - (1 << 23)
    x: Float32 = integers.astype(np.float32) * np.float32(2**-21)
    return x.reshape(shape)


def project(case: Case) -> Callable[[str], Results]:
    """A projection by one weight or by two."""
    n, k, m = case.shape
    a, b, x = weight(n, k, 1), weight(n, k, 2), activations(m, k)
    if case.kernel == "mul_mv_q4_0":
        return lambda device: (mo.mul_mv_q4_0(a, x, device=device),)
    return lambda device: mo.fused_dual_proj_q4_0(a, b, x, device=device)


def qkv_split(seq: int, q_sp: int, k_sp: int, v_sp: int) -> Callable[[str], Results]:
    """A split in which every element is another."""
    qkv = activations(seq, q_sp + k_sp + v_sp)
    return lambda device: mo.qkv_split(qkv, q_sp, k_sp, v_sp, device=device)


def digest(results: Results) -> str:
    """The beginning of the SHA-256 of all bits, in little-endian order."""
    sha = hashlib.sha256()
    for result in results:
        sha.update(result.astype("<f4").tobytes())
    return sha.hexdigest()[:16]


def first_difference(results: Results, expected: Results) -> str | None:
    """Where two results differ first, with both bit patterns; None where they do not."""
    for i, (result, other) in enumerate(zip(results, expected, strict=True)):
        bits, other_bits = result.view(np.uint32), other.view(np.uint32)
        if not np.array_equal(bits, other_bits):
            index = tuple(int(j) for j in np.argwhere(bits != other_bits)[0])
            return (
                f"result {i}, element {index}: 0x{bits[index]:08x} ({result[index]!s}), "
                f"on the CPU 0x{other_bits[index]:08x} ({other[index]!s})"
            )
    return None


def microseconds(operation: Callable[[str], Results], device: str) -> float:
    """How long the operation takes with host arrays, in the median run."""
    seconds = []
    for _ in range(TIMED_RUNS):
        start = perf_counter()
        operation(device)
        seconds.append(perf_counter() - start)
    return statistics.median(seconds) * 1e6


def compare(case: Case, operation: Callable[[str], Results], device: str) -> str | None:
    """Run a case on a device: what is wrong with its results, or None."""
    try:
        results = operation(device)
    except (mo.DeviceError, MemoryError) as error:
        return f"{type(error).__name__}: {error}"
    difference = first_difference(results, operation("cpu"))
    found = digest(results)
    if difference is None and found != case.digest:
        return f"the digest is {found}, stored is {case.digest}; the CPU has the same bits"
    return difference


def check(case: Case, device: str) -> str | None:
    """Run a case on a device and print its line. What is wrong, or None."""
    operation = case.operation
    problem = compare(case, operation, device)
    outcome = "WRONG" if problem else f"{microseconds(operation, device):10.0f} us  ok"
    print(f"{device:8} {case.label:44} {case.digest} {outcome}", flush=True)
    return f"{device}: {case.label}: {problem}" if problem else None


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "selftest",
        help="run every kernel on every device and compare the bits",
        description="Run every kernel on every device on fixed inputs, compare the bits of the "
        "results with those of the CPU and with stored digests, and time them. Exit status 1 if "
        "anything differs.",
    )
    parser.add_argument("--device", metavar="NAME", help="this device only")
    parser.set_defaults(run=lambda arguments: run(arguments.device))


def run(only: str | None = None) -> int:
    """Test all devices, or only one. Return 0 if all bits are right, else 1."""
    devices = mo.devices()
    print(f"mlxops {mo.__version__}, Python {platform.python_version()}, NumPy {np.__version__}")
    print(f"{platform.platform()}, {mo.get_num_threads()} CPU threads")
    print(devices)
    names = [device.name for device in devices if only in (None, device.name)]
    if not names:
        print(f"there is no device {only!r} here", file=sys.stderr)
        return 1
    problems = [problem for name in names for case in CASES if (problem := check(case, name))]
    for problem in problems:
        print(problem, file=sys.stderr)
    print("all bits are equal" if not problems else f"{len(problems)} cases are wrong")
    return 1 if problems else 0


# The digests are those of the canonical order of additions: one for all machines.
CASES = [
    Case("mul_mv_q4_0", (1, 32, 1), "750ec9fbe0be7261"),
    Case("mul_mv_q4_0", (33, 544, 1), "52189e375bb0f34e"),
    Case("mul_mv_q4_0", (1024, 4096, 1), "060ddab978d5b5c8"),
    Case("mul_mv_q4_0", (9, 96, 2), "ef879bad487ea4c6"),
    Case("mul_mv_q4_0", (33, 544, 3), "a1ed5f8d11002d34"),
    Case("mul_mv_q4_0", (256, 2048, 4), "c6d86e4ca7287376"),
    Case("mul_mv_q4_0", (33, 544, 8), "4bc3fb026ed4bd2e"),
    Case("mul_mv_q4_0", (7, 1056, 100), "803fbb3968684b47"),
    Case("fused_dual_proj_q4_0", (1, 32, 1), "0d64fb8befa7ea9b"),
    Case("fused_dual_proj_q4_0", (33, 544, 1), "e17ed573c6970e5f"),
    Case("fused_dual_proj_q4_0", (1024, 4096, 1), "3b3b7025cd150cea"),
    Case("fused_dual_proj_q4_0", (9, 96, 2), "ff6584096d61ea8d"),
    Case("fused_dual_proj_q4_0", (33, 544, 3), "56c0ae7470483173"),
    Case("fused_dual_proj_q4_0", (256, 2048, 4), "f9051372c84cb314"),
    Case("fused_dual_proj_q4_0", (33, 544, 8), "8cf39471947a4feb"),
    Case("fused_dual_proj_q4_0", (7, 1056, 100), "77ccbe6a06d4fba1"),
    Case("qkv_split", (1, 1, 2, 3), "3c628e2a66562ae9"),
    Case("qkv_split", (128, 256, 256, 2048), "371e1311af67ed7f"),
    Case("qkv_split", (7, 7, 5, 1), "22c12336a765d86a"),
    Case("qkv_split", (4106, 256, 256, 2048), "2257f37937e30ec9"),
]
