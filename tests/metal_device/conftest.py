"""Fixtures of the tests that look behind the Metal device."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest

import metal_sim
from mlxops import _core


class Control(metal_sim.Control):
    """The simulator's control, which forgets no broken rule."""

    def reset(self) -> None:
        """Put everything back, once it is sure that no rule was broken."""
        assert self.reports() == ""
        super().reset()


@pytest.fixture
def control() -> Control:
    """The simulator's control, at its defaults: every test puts them back (obeys_metal)."""
    return Control(metal_sim.build().library)


class WorkLimits:
    """How much work one command buffer takes, in the build of the tests."""

    def __init__(self) -> None:
        library = ctypes.CDLL(_core.__file__)
        self._projection = ctypes.c_double.in_dll(library, "mo_test_projection_work")
        self._qkv_split = ctypes.c_double.in_dll(library, "mo_test_qkv_split_work")

    def set(self, projection: float, qkv_split: float) -> None:
        """Multiply-adds of a projection, channels of a split."""
        self._projection.value, self._qkv_split.value = projection, qkv_split

    def get(self) -> tuple[float, float]:
        """Both limits."""
        return self._projection.value, self._qkv_split.value


@pytest.fixture
def work_limits() -> Iterator[WorkLimits]:
    """The limits, put back after the test."""
    limits = WorkLimits()
    before = limits.get()
    yield limits
    limits.set(*before)
