"""The simulator, and a way to run one kernel on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import metal_sim
from metal_sim.harness import Harness


@pytest.fixture(scope="session")
def simulator() -> metal_sim.MetalSim:
    return metal_sim.build()


@pytest.fixture(scope="session")
def harness(simulator: metal_sim.MetalSim, tmp_path_factory: pytest.TempPathFactory) -> Harness:
    return Harness(simulator, tmp_path_factory.mktemp("harness"))


@pytest.fixture
def control(simulator: metal_sim.MetalSim) -> Iterator[metal_sim.Control]:
    """The simulator's control, with everything at its default before and after the test."""
    control = simulator.control()
    control.reset()
    yield control
    control.reset()
