"""The QKV split: mlxops and, as a peer, three copies by NumPy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from numpy.random import default_rng

import mlxops as mo
from mlxops.bench.measurement import Measurement
from mlxops.bench.measuring import Call, Contestant, Stopwatch
from mlxops.bench.weights import Float32


def three_copies(qkv: Float32, q_sp: int, k_sp: int) -> tuple[Float32, Float32, Float32]:
    """The split in NumPy, into fresh arrays."""
    return (
        np.ascontiguousarray(qkv[:, :q_sp]),
        np.ascontiguousarray(qkv[:, q_sp : q_sp + k_sp]),
        np.ascontiguousarray(qkv[:, q_sp + k_sp :]),
    )


def measure(
    stopwatch: Stopwatch, device: str, compare: bool, seq: int, spans: Sequence[int]
) -> Iterator[Measurement]:
    """Time one shape: by mlxops on the device, and by NumPy if asked."""
    q_sp, k_sp, v_sp = spans
    one = default_rng(seq).standard_normal((seq, sum(spans)), np.float32)
    copies = list(np.tile(one, (stopwatch.cold_bytes // one.nbytes + 1, 1, 1)))
    split = partial(mo.qkv_split, device=device)
    by: dict[str, tuple[str, list[Call]]] = {
        "mlxops": (mo.__version__, [partial(split, qkv, *spans) for qkv in copies])
    }
    if compare:
        by["numpy"] = (
            f"{np.__version__}, three times ascontiguousarray",
            [partial(three_copies, qkv, q_sp, k_sp) for qkv in copies],
        )
    nbytes = 2 * one.nbytes  # read and written
    contestants = [
        Contestant(name, description, stopwatch.walks(calls, nbytes))
        for name, (description, calls) in by.items()
    ]
    shape = {"seq": seq, "q_sp": q_sp, "k_sp": k_sp, "v_sp": v_sp}
    return stopwatch.measure(contestants, "qkv_split", shape, nbytes, 0)
