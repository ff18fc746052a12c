"""Arrays for out= that stand between guard regions and start with a known pattern."""

import numpy as np
import numpy.typing as npt

PATTERN = 0xA5
GUARD_BYTES = 256


class GuardedArray:
    """A float32 array inside a larger buffer, every byte of it PATTERN at first."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        size = 4 * int(np.prod(shape))
        self._bytes = np.full(GUARD_BYTES + size + GUARD_BYTES, PATTERN, np.uint8)
        inside = self._bytes[GUARD_BYTES : GUARD_BYTES + size]
        self.array: npt.NDArray[np.float32] = inside.view(np.float32).reshape(shape)

    def assert_untouched(self) -> None:
        """Neither the array nor what surrounds it was written to."""
        assert (self._bytes == PATTERN).all()

    def assert_guards_untouched(self) -> None:
        """Nothing outside the array was written to."""
        assert (self._bytes[:GUARD_BYTES] == PATTERN).all(), "written before the array"
        assert (self._bytes[-GUARD_BYTES:] == PATTERN).all(), "written after the array"
