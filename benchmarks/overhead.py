"""What using mlxops costs before any arithmetic: the import, and the smallest calls.

    python benchmarks/overhead.py

The import is timed in fresh processes, `import numpy` and `import numpy, mlxops` in turn; quoted is
the median difference. A call is timed in batches of 10,000; quoted is the median batch.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import timeit
from collections.abc import Callable

import numpy as np

import mlxops as mo

CALLS = 10_000


def import_milliseconds(modules: str) -> float:
    """How long a fresh process takes to import the modules, by its own clock."""
    program = (
        "import time; start = time.perf_counter(); "
        f"import {modules}; print((time.perf_counter() - start) * 1e3)"
    )
    return float(subprocess.check_output([sys.executable, "-c", program]))


def added_import_milliseconds(runs: int) -> float:
    """How much `import mlxops` adds to `import numpy`."""
    pairs = [
        (import_milliseconds("numpy"), import_milliseconds("numpy, mlxops")) for _ in range(runs)
    ]
    return statistics.median(both - alone for alone, both in pairs)


def call_microseconds(call: Callable[[], object], batches: int) -> float:
    """How long one call takes, in the median batch."""
    seconds = statistics.median(timeit.repeat(call, number=CALLS, repeat=batches))
    return seconds / CALLS * 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="The cost of the import and of the smallest calls")
    parser.add_argument("--runs", type=int, default=15, help="runs of each measurement")
    runs: int = parser.parse_args().runs

    rng = np.random.default_rng(0)
    weight = mo.Q4_0Matrix.quantize(rng.standard_normal((32, 32)))
    x = rng.standard_normal(32).astype(np.float32)
    calls: dict[str, Callable[[], object]] = {
        "mul_mv_q4_0, N = K = 32": lambda: mo.mul_mv_q4_0(weight, x),
        "fused_dual_proj_q4_0, N = K = 32": lambda: mo.fused_dual_proj_q4_0(weight, weight, x),
        "qkv_split, 8 | 8 | 16": lambda: mo.qkv_split(x, 8, 8, 16),
    }
    print(f"{'import mlxops, on top of numpy':34} {added_import_milliseconds(runs):6.1f} ms")
    for name, call in calls.items():
        print(f"{name:34} {call_microseconds(call, runs):6.2f} us")


if __name__ == "__main__":
    main()
