"""The dual projection: mlxops and its peers on the same weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.random import default_rng
from numpy.typing import NDArray

import mlxops as mo
from mlxops.bench.measurement import Measurement
from mlxops.bench.measuring import Call, Contestant, Stopwatch, Walk
from mlxops.bench.peers import Loaded, Peer
from mlxops.bench.weights import Float32, Weights

WalksOf = Callable[[list[Call]], dict[str, Walk]]

# A peer whose call would take longer, by its time for a smaller m, is left out.
PATIENCE_SECONDS = 1.0

# Errors are looked for in so many rows of the results, and so many columns.
CHECKED_ROWS = 8
CHECKED_COLUMNS = 512


class Mlxops:
    """The public function, called as anyone would."""

    description = mo.__version__

    def __init__(self, weights: Weights, device: str) -> None:
        self._pairs = weights.q4_0
        self._device = device

    def calls(self, x: Float32) -> list[Call]:
        """A call for every copy of the weights."""
        function = partial(mo.fused_dual_proj_q4_0, device=self._device)
        return [partial(function, a, b, x) for a, b in self._pairs]

    def results(self, returned: Any) -> tuple[Float32, Float32]:
        """The results as they are."""
        a, b = returned
        return a, b

    def rest(self) -> None:
        """Its threads sleep soon enough."""


def activations(m: int, K: int) -> Float32:
    """Normal data [m, K]; the first rows are those of a smaller m."""
    return default_rng(K).standard_normal((m, K), np.float32)


def exact(weights: Weights, x: Float32) -> NDArray[np.float64]:
    """The part of both results that is checked, in float64."""
    wide = x[:CHECKED_ROWS].astype(np.float64)
    checked = [matrix[:CHECKED_COLUMNS].dequantize() for matrix in weights.q4_0[0]]
    return np.stack([wide @ matrix.T.astype(np.float64) for matrix in checked])


def error_rms(results: tuple[Float32, Float32], expected: NDArray[np.float64]) -> float:
    """The RMS of the error, relative to that of the exact results."""
    checked = np.stack([each[:CHECKED_ROWS, :CHECKED_COLUMNS] for each in results])
    return float(np.sqrt(((checked - expected) ** 2).mean() / (expected**2).mean()))


def contestant(
    name: str, loaded: Loaded, x: Float32, expected: NDArray[np.float64], walks: WalksOf
) -> Contestant:
    """One that is ready to be timed, its error known."""
    calls = loaded.calls(x)
    error = error_rms(loaded.results(calls[0]()), expected)
    return Contestant(name, loaded.description, walks(calls), error, loaded.rest)


def measure(
    stopwatch: Stopwatch, device: str, peers: Mapping[str, Peer], N: int, K: int, ms: Sequence[int]
) -> Iterator[Measurement]:
    """Time one shape for every m: by mlxops on the device, and by the peers."""
    weights = Weights(N, K, stopwatch.cold_bytes)
    loaded: dict[str, Loaded] = {"mlxops": Mlxops(weights, device)}
    loaded |= {name: peer.load(weights) for name, peer in peers.items()}
    seconds_per_row = dict.fromkeys(loaded, 0.0)
    walks = partial(stopwatch.walks, nbytes=weights.pair_bytes)
    for m in ms:
        x = activations(m, K)
        expected = exact(weights, x)
        contestants = [
            contestant(name, each, x, expected, walks)
            for name, each in loaded.items()
            if name == "mlxops" or seconds_per_row[name] * m < PATIENCE_SECONDS
        ]
        shape = {"N": N, "K": K, "m": m}
        for measurement in stopwatch.measure(
            contestants, "fused_dual_proj_q4_0", shape, weights.pair_bytes, 2 * N * K * m
        ):
            seconds_per_row[measurement.name] = measurement.seconds / m
            yield measurement
