"""A plugin for pytest where the driver is the fake: whatever a test does, no rule is broken."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import fake_cuda

CONTROL = fake_cuda.Control()


@pytest.fixture(autouse=True)
def obeys_cuda() -> Iterator[None]:
    """The driver has nothing to complain of."""
    yield
    CONTROL.check()
