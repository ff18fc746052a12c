"""Rounding direction and flush-to-zero of the calling thread."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import c_library

SOURCE = Path(__file__).parent / "reference" / "float_environment.c"

DIRECTIONS = ("to nearest", "upward", "downward", "toward zero")


class Setting(NamedTuple):
    """What a thread's floating point is set to."""

    rounding: str
    flush_to_zero: bool


class FloatEnvironment:
    """Sets and reads the environment of the thread that calls."""

    def __init__(self, directory: Path) -> None:
        self._library = c_library.build(SOURCE, directory)

    def get(self) -> Setting:
        """The calling thread's setting."""
        rounding = DIRECTIONS[self._library.get_rounding()]
        return Setting(rounding, bool(self._library.get_flush_to_zero()))

    def set(self, setting: Setting) -> None:
        """Change the calling thread's setting."""
        assert self._library.set_rounding(DIRECTIONS.index(setting.rounding)) == 0
        self._library.set_flush_to_zero(int(setting.flush_to_zero))

    @contextmanager
    def within(self, setting: Setting) -> Iterator[None]:
        """Run the block under ``setting``; what was set before comes back after it."""
        before = self.get()
        self.set(setting)
        try:
            yield
        finally:
            self.set(before)
