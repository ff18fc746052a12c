"""pytest.raises that also checks what the message names."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest


def word(name: str) -> str:
    """The pattern of ``name`` as a word of its own."""
    return rf"(?<!\w){re.escape(name)}(?!\w)"


def shape(sizes: Sequence[int]) -> str:
    """The pattern of a shape in any usual notation: (8, 96), [8, 96], 8 x 96."""
    return r"(?<!\d)" + r"\s*[,x]\s*".join(str(size) for size in sizes) + r"(?!\d)"


@contextmanager
def raises(
    exception: type[Exception] | tuple[type[Exception], ...], *patterns: str
) -> Iterator[None]:
    """The block raises ``exception`` with a message in which every pattern is found."""
    with pytest.raises(exception) as caught:
        yield
    message = str(caught.value)
    missing = [pattern for pattern in patterns if not re.search(pattern, message)]
    assert not missing, f"{missing} not found in the message: {message}"
