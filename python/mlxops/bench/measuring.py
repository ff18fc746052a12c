"""Timing calls that take turns: what disturbs the machine for a moment disturbs them all.

Each contestant is timed in a short burst, then the next one; after several rounds, the median of
all its samples counts.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from time import perf_counter

import numpy as np

from mlxops import _core
from mlxops.bench.measurement import Measurement

Call = Callable[[], object]

# A burst begins with calls that do not count: they wake the threads and fill the caches.
WARM_UP_SECONDS = 0.002

# Calls are timed together where one is shorter than this.
SAMPLE_SECONDS = 50e-6

# One call so long is a burst of its own, without a warm-up.
LONG_SECONDS = 0.5

# No new round begins after so long: a slow machine takes fewer samples.
LIMIT_SECONDS = 10.0


@dataclass(frozen=True)
class Effort:
    """How long is measured."""

    rounds: int
    burst_seconds: float


FULL = Effort(rounds=5, burst_seconds=0.025)
QUICK = Effort(rounds=3, burst_seconds=0.004)


class Walk:
    """Calls that are made in turn, over and over, and how long one took.

    With several calls over memory that together exceeds the caches, each finds its memory cold.
    """

    def __init__(self, calls: Sequence[Call]) -> None:
        self.n_calls = len(calls)
        self.samples: list[float] = []
        self._calls = cycle(calls)

    @property
    def seconds(self) -> float:
        """The median time of one call."""
        return statistics.median(self.samples)

    def burst(self, seconds: float) -> None:
        """Take samples for so long, at least one."""
        elapsed, n_calls = 0.0, 0
        while elapsed < WARM_UP_SECONDS:
            elapsed += self._time(1)
            n_calls += 1
        if elapsed > LONG_SECONDS:
            self.samples.append(elapsed / n_calls)
            return
        together = math.ceil(SAMPLE_SECONDS * n_calls / elapsed)
        end = perf_counter() + seconds
        self.samples.append(self._time(together) / together)
        while perf_counter() < end:
            self.samples.append(self._time(together) / together)

    def _time(self, n_calls: int) -> float:
        calls = [next(self._calls) for _ in range(n_calls)]
        start = perf_counter()
        for call in calls:
            call()
        return perf_counter() - start


@dataclass(frozen=True)
class Contestant:
    """Something to be timed: its calls on cold memory and on hot."""

    name: str
    description: str
    walks: dict[str, Walk]
    error_rms: float | None = None
    rest: Callable[[], None] = field(default=lambda: None)
    """Returns once its threads do not keep the processors busy any more."""


def alternate(contestants: Iterable[Contestant], effort: Effort) -> None:
    """Let the contestants take their turns; the samples are in their walks afterwards."""
    contestants = list(contestants)
    start = perf_counter()
    for _ in range(effort.rounds):
        for contestant in contestants:
            for walk in contestant.walks.values():
                walk.burst(effort.burst_seconds)
            contestant.rest()
        if perf_counter() - start > LIMIT_SECONDS:
            return


class Stopwatch:
    """Times contestants in turn with the reading of memory by all threads.

    What is read is four times as large as the last-level cache.
    """

    def __init__(self, cache_bytes: int, effort: Effort) -> None:
        self.cache_bytes = cache_bytes
        self.cold_bytes = 4 * cache_bytes
        self._memory = np.ones(self.cold_bytes, np.uint8)
        self._effort = effort

    def walks(self, calls: Sequence[Call], nbytes: int) -> dict[str, Walk]:
        """Calls that read so many bytes each: all in turn, and where the caches hold them, one."""
        walks = {"cold": Walk(calls)}
        if nbytes <= self.cache_bytes:
            walks["hot"] = Walk(calls[:1])
        return walks

    def measure(
        self,
        contestants: Sequence[Contestant],
        operation: str,
        shape: dict[str, int],
        nbytes: int,
        macs: int,
    ) -> Iterator[Measurement]:
        """Time the contestants at one operation; all their results."""
        read = Walk([lambda: _core.read_memory(self._memory)])
        alternate([*contestants, Contestant("read", "", {"cold": read})], self._effort)
        for contestant in contestants:
            for memory, walk in contestant.walks.items():
                yield Measurement(
                    operation=operation,
                    shape=shape,
                    memory=memory,
                    name=contestant.name,
                    description=contestant.description,
                    seconds=walk.seconds,
                    samples=len(walk.samples),
                    copies=walk.n_calls,
                    nbytes=nbytes,
                    macs=macs,
                    read_bandwidth=self._memory.nbytes / read.seconds,
                    error_rms=contestant.error_rms,
                )
