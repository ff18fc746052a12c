"""A llama-architecture model whose projections run in mlxops, and all the rest in NumPy.

A batch of m tokens has the shape [m, hidden_size]. The projections take the whole batch at once.
What NumPy computes (norms, attention, activation) is computed for one token after another, always
with the same shapes, so that a token's logits are the same bits in whatever batch it comes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

import mlxops as mo

Array = npt.NDArray[np.float32]
Rotations = npt.NDArray[np.complex64]


@dataclass(frozen=True)
class Config:
    """The sizes of a model."""

    n_layers: int
    hidden_size: int
    n_heads: int
    n_kv_heads: int
    rms_eps: float
    rope_base: float
    context_length: int
    eos_token_id: int

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> "Config":
        """Read the sizes from the metadata of a GGUF file; ValueError if it holds no llama."""
        architecture = metadata["general.architecture"]
        if architecture != "llama":
            raise ValueError(f"the architecture is {architecture}, this example knows llama")
        return cls(
            n_layers=metadata["llama.block_count"],
            hidden_size=metadata["llama.embedding_length"],
            n_heads=metadata["llama.attention.head_count"],
            n_kv_heads=metadata["llama.attention.head_count_kv"],
            rms_eps=metadata["llama.attention.layer_norm_rms_epsilon"],
            rope_base=metadata["llama.rope.freq_base"],
            context_length=metadata["llama.context_length"],
            eos_token_id=metadata["tokenizer.ggml.eos_token_id"],
        )

    @property
    def head_dim(self) -> int:
        """Each head has its share of the hidden size."""
        return self.hidden_size // self.n_heads


class KVCache:
    """The keys and values of one layer, for all tokens so far."""

    def __init__(self, config: Config, capacity: int) -> None:
        self.keys = np.empty((config.n_kv_heads, capacity, config.head_dim), np.float32)
        self.values = np.empty_like(self.keys)
        self.length = 0

    def append(self, k: Array, v: Array) -> tuple[Array, Array]:
        """Add one token's k and v [n_kv_heads, head_dim]; all of both [n_kv_heads, length, ...]."""
        self.keys[:, self.length] = k
        self.values[:, self.length] = v
        self.length += 1
        return self.keys[:, : self.length], self.values[:, : self.length]


@dataclass(frozen=True)
class RMSNorm:
    """Scale a token to unit root mean square, then each element by its weight."""

    weight: Array
    eps: float

    def __call__(self, x: Array) -> Array:
        """Normalise one token [hidden_size]."""
        normed: Array = x / np.sqrt(np.mean(x * x) + self.eps) * self.weight
        return normed


@dataclass(frozen=True)
class Attention:
    """Grouped-query attention with rotary positions."""

    config: Config
    rotations: Rotations  # [context_length, head_dim / 2]

    def __call__(self, cache: KVCache, q: Array, k: Array, v: Array) -> Array:
        """Add one token to the cache, and let it attend to all tokens there: [hidden_size]."""
        groups, head_dim = self.config.n_kv_heads, self.config.head_dim
        rotation = self.rotations[cache.length]
        q = rotate(q.reshape(groups, -1, head_dim), rotation)
        k = rotate(k.reshape(groups, head_dim), rotation)
        keys, values = cache.append(k, v.reshape(groups, head_dim))
        scores = q @ keys.transpose(0, 2, 1) * np.float32(head_dim**-0.5)
        attended: Array = softmax(scores) @ values  # [groups, heads in a group, head_dim]
        return attended.ravel()


@dataclass(frozen=True)
class Layer:
    """One transformer layer. q, k and v are row slices of qkv: the same memory under two names."""

    attn_norm: RMSNorm
    qkv: mo.Q4_0Matrix
    q: mo.Q4_0Matrix
    k: mo.Q4_0Matrix
    v: mo.Q4_0Matrix
    attention: Attention
    attn_output: mo.Q4_0Matrix
    ffn_norm: RMSNorm
    gate: mo.Q4_0Matrix
    up: mo.Q4_0Matrix
    down: mo.Q4_0Matrix

    def __call__(self, x: Array, cache: KVCache) -> Array:
        """Take a batch through the layer: [m, hidden_size] -> [m, hidden_size]."""
        normed = token_by_token(self.attn_norm, x)
        if len(x) == 1:  # decode: k and v from one dispatch that reads the token once
            q = mo.mul_mv_q4_0(self.q, normed)
            k, v = mo.fused_dual_proj_q4_0(self.k, self.v, normed)
        else:  # prefill or verify: one projection for all three, then one split
            qkv = mo.mul_mv_q4_0(self.qkv, normed)
            q, k, v = mo.qkv_split(qkv, len(self.q), len(self.k), len(self.v))
        attended = token_by_token(partial(self.attention, cache), q, k, v)
        x = x + mo.mul_mv_q4_0(self.attn_output, attended)

        normed = token_by_token(self.ffn_norm, x)
        gate, up = mo.fused_dual_proj_q4_0(self.gate, self.up, normed)
        return x + mo.mul_mv_q4_0(self.down, token_by_token(swiglu, gate, up))


class Llama:
    """A whole model: the embedding, the layers and the output head.

    `matrices` and `vectors` hold the tensors under their names in the GGUF file; a KeyError names
    one that is missing.
    """

    def __init__(
        self, config: Config, matrices: Mapping[str, mo.Q4_0Matrix], vectors: Mapping[str, Array]
    ) -> None:
        self.config = config
        self.embedding = matrices["token_embd.weight"]
        attention = Attention(config, rope_rotations(config))
        self.layers = [
            load_layer(f"blk.{i}", config, attention, matrices, vectors)
            for i in range(config.n_layers)
        ]
        self.output_norm = RMSNorm(vectors["output_norm.weight"], config.rms_eps)
        self.output = matrices.get("output.weight", self.embedding)  # many models tie the two

    def new_caches(self, capacity: int) -> list[KVCache]:
        """Make an empty cache for each layer, with room for `capacity` tokens."""
        return [KVCache(self.config, capacity) for _ in self.layers]

    def forward(self, tokens: Sequence[int], caches: Sequence[KVCache]) -> Array:
        """Take a batch of tokens, one cache per layer, through all layers: [m, hidden_size]."""
        x = np.concatenate([self.embedding[token : token + 1].dequantize() for token in tokens])
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, cache)
        return x

    def head(self, x: Array) -> Array:
        """Turn what the layers made of a batch into logits: [m, hidden_size] -> [m, vocab_size]."""
        return mo.mul_mv_q4_0(self.output, token_by_token(self.output_norm, x))


def load_layer(
    prefix: str,
    config: Config,
    attention: Attention,
    matrices: Mapping[str, mo.Q4_0Matrix],
    vectors: Mapping[str, Array],
) -> Layer:
    """Collect the tensors of one layer, and stack q, k and v into one matrix."""
    q, k, v = (matrices[f"{prefix}.attn_{name}.weight"] for name in "qkv")
    qkv = mo.Q4_0Matrix.concat([q, k, v])
    return Layer(
        attn_norm=RMSNorm(vectors[f"{prefix}.attn_norm.weight"], config.rms_eps),
        qkv=qkv,
        q=qkv[: len(q)],
        k=qkv[len(q) : len(q) + len(k)],
        v=qkv[len(q) + len(k) :],
        attention=attention,
        attn_output=matrices[f"{prefix}.attn_output.weight"],
        ffn_norm=RMSNorm(vectors[f"{prefix}.ffn_norm.weight"], config.rms_eps),
        gate=matrices[f"{prefix}.ffn_gate.weight"],
        up=matrices[f"{prefix}.ffn_up.weight"],
        down=matrices[f"{prefix}.ffn_down.weight"],
    )


def token_by_token(function: Callable[..., Array], *batches: Array) -> Array:
    """Apply a function of single tokens to each token of a batch."""
    return np.stack([function(*tokens) for tokens in zip(*batches, strict=True)])


def rope_rotations(config: Config) -> Rotations:
    """Return the rotary embedding as unit complex numbers [context_length, head_dim / 2]."""
    pairs = np.arange(config.head_dim // 2)
    frequencies = config.rope_base ** (-2 * pairs / config.head_dim)
    angles = np.outer(np.arange(config.context_length), frequencies)
    rotations: Rotations = np.exp(1j * angles).astype(np.complex64)
    return rotations


def rotate(heads: Array, rotation: Rotations) -> Array:
    """Rotate heads [..., head_dim]: neighbours are a pair, so a pair is one complex number."""
    return (heads.view(np.complex64) * rotation).view(np.float32)


def softmax(x: Array) -> Array:
    """Turn scores into weights that add up to 1 along the last axis."""
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    weights: Array = powers / powers.sum(axis=-1, keepdims=True)
    return weights


def swiglu(gate: Array, up: Array) -> Array:
    """Let the gate of one token decide how much of its up passes."""
    sigmoid = 0.5 + 0.5 * np.tanh(0.5 * gate)
    activated: Array = gate * sigmoid * up
    return activated
