"""Where a program spends its time, measured from outside of the code that is watched."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import wraps
from time import perf_counter
from typing import Any
from unittest.mock import patch

Function = tuple[object, str]  # the module or class that holds it, and its name there


class Stopwatch:
    """A context manager that adds up the seconds spent in each part of a program.

    A part is a set of functions. While the context is open they are replaced by timed ones. Where
    they call each other, all of the time counts for the outermost.
    """

    def __init__(self, parts: Mapping[str, Sequence[Function]]) -> None:
        self.seconds = dict.fromkeys(parts, 0.0)
        self.total = 0.0
        self._parts = parts
        self._inside = False
        self._patches = ExitStack()

    def __enter__(self) -> "Stopwatch":
        for part, functions in self._parts.items():
            for holder, name in functions:
                timed = self._timed(part, getattr(holder, name))
                self._patches.enter_context(patch.object(holder, name, timed))
        self._start = perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.total = perf_counter() - self._start
        self._patches.close()

    def _timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._inside:
                return function(*args, **kwargs)
            self._inside = True
            start = perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds[part] += perf_counter() - start
                self._inside = False

        return timed
