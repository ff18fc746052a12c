"""The memory of freed results and matrices, which is kept for the next ones."""

from __future__ import annotations

from typing import NamedTuple

from mlxops import _core


class CacheInfo(NamedTuple):
    """How much memory is kept."""

    nbytes: int
    """Bytes of freed buffers that wait to be used again."""
    limit: int
    """The most bytes that are kept."""


def cache_info() -> CacheInfo:
    """Return how much memory is kept for the next results and matrices; `clear_cache` frees it."""
    return CacheInfo(*_core.cache_info())
