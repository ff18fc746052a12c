"""The independent reference: canonical_order.c behind NumPy arrays."""

from collections.abc import Sequence
from ctypes import c_int64
from pathlib import Path

import numpy as np
import numpy.typing as npt

import c_library

SOURCE = Path(__file__).parent / "reference" / "canonical_order.c"


class CanonicalReference:
    """x @ W.T in the canonical order, on one thread, one element after the other."""

    def __init__(self, directory: Path) -> None:
        self._function = c_library.build(SOURCE, directory).canonical_order
        self._function.restype = None
        self._function.argtypes = [
            np.ctypeslib.ndpointer(np.uint8, ndim=2, flags="C_CONTIGUOUS"),
            np.ctypeslib.ndpointer(np.float32, ndim=2, flags="C_CONTIGUOUS"),
            c_int64,
            c_int64,
            np.ctypeslib.ndpointer(np.int64, ndim=1, flags="C_CONTIGUOUS"),
            c_int64,
            np.ctypeslib.ndpointer(np.float32, ndim=2, flags="C_CONTIGUOUS"),
        ]

    def __call__(
        self,
        blocks: npt.NDArray[np.uint8],
        x: npt.NDArray[np.float32],
        rows: Sequence[int] | npt.NDArray[np.int64] | None = None,
    ) -> npt.NDArray[np.float32]:
        """Results [m, N], or [m, len(rows)] for chosen rows of the weight.

        ``blocks`` is uint8 [N, K / 32 * 18], ``x`` is float32 [m, K].
        """
        N, row_bytes = blocks.shape
        m, K = x.shape
        assert row_bytes // 18 * 32 == K, (blocks.shape, x.shape)
        chosen = np.arange(N) if rows is None else np.asarray(rows, np.int64)
        assert set(chosen) <= set(range(N))
        result = np.empty((m, len(chosen)), np.float32)
        self._function(blocks, x, m, K, chosen.astype(np.int64), len(chosen), result)
        return result
