"""What `--compare` compares with, where it is installed: each does the same two projections.

A peer gets x as float32, and its results are taken as float32; both outside of the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from mlxops.bench.ggml import GGML
from mlxops.bench.measuring import Call
from mlxops.bench.weights import Float32, Weights

# The threads of OpenBLAS and of OpenMP look out for more work about so long after the last.
SPIN_SECONDS = 0.03


class Loaded(Protocol):
    """The weights of one shape, in the form that a peer computes with."""

    @property
    def description(self) -> str:
        """Versions, and the way that was taken."""

    def calls(self, x: Float32) -> list[Call]:
        """For every copy of the weights a call that multiplies x by both; valid until the next."""

    def results(self, returned: object) -> tuple[Float32, Float32]:
        """What a call has returned, as arrays of shape [m, N]."""

    def rest(self) -> None:
        """Return once the peer's threads do not look out for more work any longer."""


class Peer(Protocol):
    """Another library."""

    def load(self, weights: Weights) -> Loaded:
        """Convert the weights."""


class Dense:
    """Two products of float32 matrices, by whatever has an operator @ for them."""

    def __init__(
        self, description: str, matrices: list[Any], convert: Callable[[Any], Any]
    ) -> None:
        self.description = description
        self._matrices = matrices
        self._convert = convert

    def calls(self, x: Float32) -> list[Call]:
        """The weights come first: BLAS is faster than with x @ W.T, the more so for small m."""
        x_t = self._convert(x).T

        def call(a: Any, b: Any) -> Call:
            return lambda: (a @ x_t, b @ x_t)

        return [call(a, b) for a, b in self._matrices]

    def results(self, returned: Any) -> tuple[Float32, Float32]:
        """The products, transposed."""
        a, b = returned
        return np.asarray(a).T, np.asarray(b).T

    def rest(self) -> None:
        """Wait."""
        time.sleep(SPIN_SECONDS)


class NumPy:
    """NumPy on dequantised weights."""

    def __init__(self, threads: int) -> None:
        self._description = f"{np.__version__}, dequantised to float32"
        try:
            threadpoolctl = import_module("threadpoolctl")
        except ImportError:
            self._description += ", threads as it likes (threadpoolctl would set them)"
        else:
            threadpoolctl.threadpool_limits(threads, user_api="blas")
            blas = [each for each in threadpoolctl.threadpool_info() if each["user_api"] == "blas"]
            for each in blas[:1]:
                self._description += f", {each['internal_api']} {each['version']}"

    def load(self, weights: Weights) -> Loaded:
        """Dequantise."""
        return Dense(self._description, weights.dense, lambda x: x)


class Torch:
    """torch on dequantised weights."""

    def __init__(self, threads: int) -> None:
        self._torch = import_module("torch")
        self._torch.set_num_threads(threads)
        self._torch.set_grad_enabled(False)

    def load(self, weights: Weights) -> Loaded:
        """Dequantise."""
        torch = self._torch
        matrices = [torch.from_numpy(pair) for pair in weights.dense]
        return Dense(f"{torch.__version__}, dequantised to float32", matrices, torch.from_numpy)


class MLX:
    """MLX on its CPU device, on weights in its own format of 4 bits, w = scale q + bias."""

    def __init__(self) -> None:
        self._mx = import_module("mlx.core")

    def load(self, weights: Weights) -> Loaded:
        """Convert: scale = d and bias = -8 d, both exact."""
        return LoadedMLX(self._mx, weights)


class LoadedMLX:
    """Q4_0 weights in MLX's format: eight values in a uint32, in the order of the columns."""

    def __init__(self, mx: Any, weights: Weights) -> None:
        self.description = f"{mx.__version__}, quantized_matmul, threads as it likes"
        self._mx = mx
        blocks = weights.blocks.reshape(2, weights.N, -1, 18)
        d = blocks[..., :2].copy().view("<f2")[..., 0].astype(np.float32)
        qs = blocks[..., 2:]
        q = np.concatenate([qs & 15, qs >> 4], axis=-1)
        packed = (q[..., ::2] | q[..., 1::2] << 4).view("<u4").reshape(2, weights.N, -1)
        self._pairs = [
            [[mx.array(part[i]) for part in (packed, d, -8 * d)] for i in range(2)]
            for _ in range(weights.copies(packed.nbytes + 2 * d.nbytes))
        ]
        mx.eval(self._pairs)

    def calls(self, x: Float32) -> list[Call]:
        """Two lazy products, evaluated together."""
        mx, x_mx = self._mx, self._mx.array(x)

        def multiply(parts: list[Any]) -> Any:
            return mx.quantized_matmul(
                x_mx, *parts, transpose=True, group_size=32, bits=4, stream=mx.cpu
            )

        def call(a: list[Any], b: list[Any]) -> Call:
            def run() -> tuple[Any, Any]:
                results = multiply(a), multiply(b)
                mx.eval(*results)
                return results

            return run

        return [call(a, b) for a, b in self._pairs]

    def results(self, returned: Any) -> tuple[Float32, Float32]:
        """The products."""
        a, b = returned
        return np.asarray(a), np.asarray(b)

    def rest(self) -> None:
        """Wait."""
        time.sleep(SPIN_SECONDS)


INSTALL = {
    "numpy": "pip install numpy",
    "ggml": "pip install libggml-python",
    "torch": "pip install torch",
    "mlx": "pip install 'mlx[cpu]'",
}


def find(threads: int, ggml_folder: Path | None) -> tuple[dict[str, Peer], dict[str, str]]:
    """The peers by name; and the names of those that are not there, with what to do."""
    makers: dict[str, Callable[[], Peer]] = {
        "numpy": lambda: NumPy(threads),
        "ggml": lambda: GGML(threads, ggml_folder),
        "torch": lambda: Torch(threads),
        "mlx": MLX,
    }
    peers: dict[str, Peer] = {}
    missing: dict[str, str] = {}
    for name, make in makers.items():
        try:
            peers[name] = make()
        except ModuleNotFoundError:
            missing[name] = INSTALL[name]
        except (ImportError, OSError) as error:
            missing[name] = f"it cannot be used: {error}"
    return peers, missing
