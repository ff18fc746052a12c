"""On real weights every element is within the error bound of the canonical order."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import mlxops as mo
from mlxops.testing import assert_within_bound


@pytest.fixture(scope="module")
def model(model_path: Path) -> Iterator[mo.gguf.GGUFFile]:
    with mo.gguf.load(model_path) as tensors:
        yield tensors


def quantized(model: mo.gguf.GGUFFile, name: str) -> mo.Q4_0Matrix:
    """A projection of the model as Q4_0."""
    tensor = model[name]
    return tensor if isinstance(tensor, mo.Q4_0Matrix) else tensor.quantize()


def activations(rng: np.random.Generator, m: int, K: int) -> np.ndarray:
    """Normal data with a few channels a hundred times larger, as in a trained network."""
    x = rng.standard_normal((m, K), np.float32)
    x[:, rng.integers(0, K, 3)] *= 100
    return x


@pytest.mark.parametrize("m", [1, 3, 8])
@pytest.mark.parametrize("layer", [0, 15])
@pytest.mark.parametrize("pair", [("attn_k", "attn_v"), ("ffn_gate", "ffn_up")], ids="+".join)
def test_dual_projections(
    pair: tuple[str, str],
    layer: int,
    m: int,
    device: str,
    model: mo.gguf.GGUFFile,
    rng: np.random.Generator,
) -> None:
    weight_a, weight_b = (quantized(model, f"blk.{layer}.{name}.weight") for name in pair)
    x = activations(rng, m, weight_a.shape[1])
    a, b = mo.fused_dual_proj_q4_0(weight_a, weight_b, x, device=device)
    assert_within_bound(a, weight_a, x)
    assert_within_bound(b, weight_b, x)


@pytest.fixture(scope="module")
def head(model: mo.gguf.GGUFFile) -> mo.Q4_0Matrix:
    """The output head, which small models share with the embedding."""
    return quantized(model, "output.weight" if "output.weight" in model else "token_embd.weight")


@pytest.mark.parametrize("m", [1, 3, 8])
@pytest.mark.parametrize("part", ["start", "middle", "end"])
def test_slices_of_the_output_head(
    part: str, m: int, device: str, head: mo.Q4_0Matrix, rng: np.random.Generator
) -> None:
    start = {"start": 0, "middle": len(head) // 2 + 3, "end": len(head) - 1021}[part]
    weight = head[start : start + 1021]
    x = activations(rng, m, weight.shape[1])
    assert_within_bound(mo.mul_mv_q4_0(weight, x, device=device), weight, x)
