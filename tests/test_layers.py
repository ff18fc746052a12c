"""The layers: what they compute, in how many pieces, on real weights within the error bound."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import mlxops as mo
from mlxops.layers import GatedAttentionInput, GatedDeltaNetInput, SwiGLU, silu, split_q_gate
from mlxops.testing import assert_bits_equal, assert_within_bound, error_bound
from q4_0_data import normal_input, random_blocks

Float32 = npt.NDArray[np.float32]

HIDDEN = 64


def matrix(rng: np.random.Generator, N: int, K: int = HIDDEN) -> mo.Q4_0Matrix:
    return mo.Q4_0Matrix.from_blocks(random_blocks(rng, N, K), (N, K))


@pytest.mark.parametrize("shape", [(HIDDEN,), (1, HIDDEN), (2, 5, HIDDEN)])
def test_gated_attention(shape: tuple[int, ...], device: str, rng: np.random.Generator) -> None:
    layer = GatedAttentionInput(*(matrix(rng, N) for N in (96, 96, 32, 32)))
    x = normal_input(rng, int(np.prod(shape[:-1])), HIDDEN).reshape(shape)
    found = layer(x, device)
    for name, result in found._asdict().items():
        assert_bits_equal(result, mo.mul_mv_q4_0(getattr(layer, name), x, device="cpu"))


def test_q_and_gate_that_are_interleaved_by_head(rng: np.random.Generator) -> None:
    n_heads, head_dim = 3, 8
    weight = matrix(rng, 2 * n_heads * head_dim)
    q, gate = split_q_gate(weight, head_dim)
    rows = weight.dequantize().reshape(n_heads, 2, head_dim, HIDDEN)
    assert_bits_equal(q.dequantize(), rows[:, 0].reshape(-1, HIDDEN))
    assert_bits_equal(gate.dequantize(), rows[:, 1].reshape(-1, HIDDEN))


@pytest.mark.parametrize("head_dim", [0, -8, 5, 16, 100])
def test_heads_that_do_not_fit(head_dim: int, rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match="the weight has 48 rows, which are not heads of"):
        split_q_gate(matrix(rng, 48), head_dim)


@pytest.mark.parametrize("seq", [1, 7])
def test_gated_delta_net(seq: int, device: str, rng: np.random.Generator) -> None:
    layer = GatedDeltaNetInput(matrix(rng, 2 * 32 + 96), n_k_heads=2, d_k=16, n_v_heads=3, d_v=32)
    x = normal_input(rng, seq, HIDDEN)
    qkv = mo.mul_mv_q4_0(layer.qkv, x, device="cpu")
    found = layer(x, device)
    assert [part.shape for part in found] == [(seq, 32), (seq, 32), (seq, 96)]
    assert_bits_equal(np.concatenate(found, axis=1), qkv)

    def convolve(fused: Float32) -> Float32:
        assert_bits_equal(fused, qkv)
        moved: Float32 = fused + np.float32(1)
        return moved

    assert_bits_equal(np.concatenate(layer(x, device, convolve=convolve), axis=1), qkv + 1)


def test_a_convolution_that_fails(device: str, rng: np.random.Generator) -> None:
    layer = GatedDeltaNetInput(matrix(rng, 96), n_k_heads=1, d_k=32, n_v_heads=1, d_v=32)
    with pytest.raises(ZeroDivisionError):
        layer(normal_input(rng, 2, HIDDEN), device, convolve=lambda fused: fused * (1 // 0))
    with pytest.raises(ValueError, match="qkv has shape"):
        layer(normal_input(rng, 2, HIDDEN), device, convolve=lambda fused: fused[:, 1:])


def test_swiglu(device: str, rng: np.random.Generator) -> None:
    layer = SwiGLU(matrix(rng, 96), matrix(rng, 96), matrix(rng, HIDDEN, 96))
    x = normal_input(rng, 3, HIDDEN)
    gate, up = mo.fused_dual_proj_q4_0(layer.gate, layer.up, x)
    assert_bits_equal(layer(x, device), mo.mul_mv_q4_0(layer.down, silu(gate) * up))


def test_silu() -> None:
    x = np.array([-1e30, -100, -1, -0.0, 0, 1, 100, 1e30], np.float32)
    wide = x.astype(np.float64)
    with np.errstate(over="ignore"):
        expected = wide / (1 + np.exp(-wide))
    np.testing.assert_allclose(silu(x), expected, rtol=1e-6, atol=1e-5)
    assert silu(x).dtype == np.float32


# ---- Real weights --------------------------------------------------------------------------------


def quantized(model: mo.gguf.GGUFFile, name: str) -> mo.Q4_0Matrix:
    tensor = model[f"blk.3.{name}.weight"]
    return tensor if isinstance(tensor, mo.Q4_0Matrix) else tensor.quantize()


def test_real_weights(model_path: Path, device: str, rng: np.random.Generator) -> None:
    with mo.gguf.load(model_path) as model:
        q, k, v, gate, up, down = (
            quantized(model, name)
            for name in ("attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up", "ffn_down")
        )
    x = normal_input(rng, 4, q.shape[1])

    attention = GatedAttentionInput(q, q, k, v)
    for name, result in attention(x, device)._asdict().items():
        assert_within_bound(result, getattr(attention, name), x)

    spans = (len(k), len(k), len(v))
    fused = mo.Q4_0Matrix.concat([k, k, v])
    delta_net = GatedDeltaNetInput(fused, n_k_heads=1, d_k=spans[1], n_v_heads=1, d_v=spans[2])
    for result, weight in zip(delta_net(x, device), (k, k, v), strict=True):
        assert_within_bound(result, weight, x)

    check_mlp(SwiGLU(gate, up, down), x, device)


def check_mlp(layer: SwiGLU, x: Float32, device: str) -> None:
    """Against float64, with what the bound of each projection makes of the whole."""
    W_gate, W_up, W_down = (
        weight.dequantize().astype(np.float64) for weight in (layer.gate, layer.up, layer.down)
    )
    wide = x.astype(np.float64)
    gate, up = wide @ W_gate.T, wide @ W_up.T
    activated = gate / (1 + np.exp(-gate)) * up
    error_gate = error_bound(x.shape[1]) * (np.abs(wide) @ np.abs(W_gate.T))
    error_up = error_bound(x.shape[1]) * (np.abs(wide) @ np.abs(W_up.T))
    # silu changes by 1.1 times what its argument does at most; its own errors are a few ulps.
    error = 1.1 * error_gate * np.abs(up) + np.abs(gate) * error_up + 1e-6 * np.abs(gate * up)
    error_down = error_bound(W_down.shape[1]) * ((np.abs(activated) + error) @ np.abs(W_down.T))
    difference = np.abs(layer(x, device) - activated @ W_down.T)
    assert (difference <= error @ np.abs(W_down.T) + error_down).all()
