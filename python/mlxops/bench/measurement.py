"""One result: who did what, and how fast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Measurement:
    """The median time of one operation by one contestant, and what follows from it."""

    operation: str
    shape: dict[str, int]
    memory: str
    """'cold': what is read comes from memory; 'hot': from the caches."""
    name: str
    """'mlxops', or a peer."""
    description: str
    seconds: float
    samples: int
    copies: int
    """How many copies of the operands were read in turn."""
    nbytes: int
    """Of the weights, as Q4_0, whoever computes; of the split, those read and those written."""
    macs: int
    read_bandwidth: float
    """Of the processor, in bytes per second, measured in turn with this."""
    error_rms: float | None
    """Against float64, relative to the RMS of the exact result; None where nothing is computed."""

    @property
    def gb_per_s(self) -> float:
        """Bytes by time."""
        return self.nbytes / self.seconds / 1e9

    @property
    def gmac_per_s(self) -> float:
        """Multiply-adds by time."""
        return self.macs / self.seconds / 1e9

    @property
    def share_of_read_bandwidth(self) -> float:
        """1: as fast as memory can be read."""
        return self.nbytes / self.seconds / self.read_bandwidth

    def as_json(self) -> dict[str, Any]:
        """All of it as numbers and texts."""
        return {
            "operation": self.operation,
            **self.shape,
            "memory": self.memory,
            "name": self.name,
            "description": self.description,
            "seconds": self.seconds,
            "samples": self.samples,
            "copies": self.copies,
            "bytes": self.nbytes,
            "macs": self.macs,
            "gb_per_s": self.gb_per_s,
            "gmac_per_s": self.gmac_per_s,
            "read_gb_per_s": self.read_bandwidth / 1e9,
            "share_of_read_bandwidth": self.share_of_read_bandwidth,
            "error_rms": self.error_rms,
        }
