"""The projections of three kinds of layers, for prototypes: each in as few dispatches as it takes.

What lies between projections (norms, rotary embeddings, convolutions, attention) is the prototype's
own. Inputs have the shape (..., hidden_size), results are float32; errors are those of the
operations.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mlxops._core import Encoder, Q4_0Matrix, fused_dual_proj_q4_0, mul_mv_q4_0
from mlxops._types import DeviceLike, Float32, Operand

__all__ = [
    "DeltaNetInputs",
    "GatedAttentionInput",
    "GatedAttentionInputs",
    "GatedDeltaNetInput",
    "SwiGLU",
    "split_q_gate",
]


class GatedAttentionInputs(NamedTuple):
    """What gated attention begins with."""

    q: Float32
    """(..., n_heads * head_dim)"""
    gate: Float32
    """(..., n_heads * head_dim); its sigmoid scales what the heads attended to."""
    k: Float32
    """(..., n_kv_heads * head_dim)"""
    v: Float32
    """(..., n_kv_heads * head_dim)"""


class DeltaNetInputs(NamedTuple):
    """What a Gated DeltaNet layer begins with."""

    q: Float32
    """(..., n_k_heads * d_k)"""
    k: Float32
    """(..., n_k_heads * d_k)"""
    v: Float32
    """(..., n_v_heads * d_v)"""


def split_q_gate(weight: Q4_0Matrix, head_dim: int) -> tuple[Q4_0Matrix, Q4_0Matrix]:
    """Return q's and the gate's rows of a weight that holds them head by head.

    GGUF files of Qwen3.5 have one tensor attn_q of 2 n_heads head_dim rows: for each head head_dim
    rows of q, then as many of the gate. Both results are new matrices, (n_heads * head_dim, K).

    Raises ValueError unless head_dim is positive and the rows are a multiple of 2 head_dim.
    """
    if head_dim < 1 or len(weight) % (2 * head_dim) != 0:
        raise ValueError(
            f"the weight has {len(weight)} rows, which are not heads of {head_dim} rows of q and "
            f"{head_dim} of the gate"
        )
    parts = [weight[row : row + head_dim] for row in range(0, len(weight), head_dim)]
    return Q4_0Matrix.concat(parts[::2]), Q4_0Matrix.concat(parts[1::2])


@dataclass(frozen=True)
class GatedAttentionInput:
    """The projections of gated full attention, as in Qwen3.5: q and gate, k and v."""

    q: Q4_0Matrix
    """(n_heads * head_dim, hidden_size)"""
    gate: Q4_0Matrix
    """The same shape."""
    k: Q4_0Matrix
    """(n_kv_heads * head_dim, hidden_size)"""
    v: Q4_0Matrix
    """The same shape."""

    def __call__(self, x: Operand, device: DeviceLike = None) -> GatedAttentionInputs:
        """Project x in two dispatches, which are one piece of work."""
        with Encoder(device) as encoder:
            q, gate = encoder.fused_dual_proj_q4_0(self.q, self.gate, x)
            k, v = encoder.fused_dual_proj_q4_0(self.k, self.v, x)
        return GatedAttentionInputs(q, gate, k, v)


@dataclass(frozen=True)
class GatedDeltaNetInput:
    """The fused projection of a Gated DeltaNet layer, and its split."""

    qkv: Q4_0Matrix
    """(2 n_k_heads d_k + n_v_heads d_v, hidden_size): rows of q, of k, of v."""
    n_k_heads: int
    d_k: int
    n_v_heads: int
    d_v: int

    def __call__(
        self,
        x: Operand,
        device: DeviceLike = None,
        *,
        convolve: Callable[[Float32], Float32] | None = None,
    ) -> DeltaNetInputs:
        """Project x and split the result in two dispatches, which are one piece of work.

        `convolve`, the layer's short convolution, takes the fused tensor and returns one of its
        shape; it runs between the two, which are two pieces of work then.
        """
        encoder = Encoder(device)
        qkv = encoder.mul_mv_q4_0(self.qkv, x)
        if convolve is not None:
            encoder.wait()
            qkv, encoder = convolve(qkv), Encoder(device)
        q, k, v = encoder.qkv_split(
            qkv, n_k_heads=self.n_k_heads, d_k=self.d_k, n_v_heads=self.n_v_heads, d_v=self.d_v
        )
        encoder.wait()
        return DeltaNetInputs(q, k, v)


@dataclass(frozen=True)
class SwiGLU:
    """The MLP of most models: down(silu(gate(x)) * up(x)). silu is NumPy's work, in float32."""

    gate: Q4_0Matrix
    """(intermediate_size, hidden_size)"""
    up: Q4_0Matrix
    """The same shape."""
    down: Q4_0Matrix
    """(hidden_size, intermediate_size)"""

    def __call__(self, x: Operand, device: DeviceLike = None) -> Float32:
        """Take x through the MLP: the same shape."""
        gate, up = fused_dual_proj_q4_0(self.gate, self.up, x, device=device)
        return mul_mv_q4_0(self.down, silu(gate) * up, device=device)


def silu(x: Float32) -> Float32:
    """Return x * sigmoid(x), with a sigmoid that does not overflow."""
    activated: Float32 = x * (0.5 + 0.5 * np.tanh(0.5 * x))
    return activated
