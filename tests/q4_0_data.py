"""Q4_0 blocks to test with, made from the format's definition."""

import numpy as np
import numpy.typing as npt

# Bit patterns of the half d, one for every kind of half.
SCALES = {
    "zero": 0x0000,
    "minus zero": 0x8000,
    "one": 0x3C00,
    "negative": 0xB800,
    "smallest subnormal": 0x0001,
    "largest subnormal": 0x03FF,
    "negative subnormal": 0x8155,
    "smallest normal": 0x0400,
    "65504": 0x7BFF,
    "minus 65504": 0xFBFF,
    "inf": 0x7C00,
    "minus inf": 0xFC00,
    "quiet NaN": 0x7E00,
    "signalling NaN": 0x7C01,
    "negative NaN": 0xFFFF,
}


def pack_blocks(
    scales: npt.NDArray[np.uint16], nibbles: npt.NDArray[np.uint8]
) -> npt.NDArray[np.uint8]:
    """Blocks uint8 [N, K/32 * 18] from the bits of d [N, K/32] and the nibbles [N, K]."""
    N, K = nibbles.shape
    halves = nibbles.reshape(N, K // 32, 2, 16)
    d = scales.astype("<u2").reshape(N, K // 32, 1).view(np.uint8)
    qs = halves[:, :, 0] | halves[:, :, 1] << 4
    return np.concatenate([d, qs], axis=2).reshape(N, K // 32 * 18)


def ordinary_scales(rng: np.random.Generator, N: int, K: int) -> npt.NDArray[np.uint16]:
    """The bits of positive and negative scales over a few binades, as trained weights have them."""
    magnitude = np.ldexp(rng.uniform(1, 2, (N, K // 32)), rng.integers(-9, -4, (N, K // 32)))
    return (rng.choice([-1, 1], magnitude.shape) * magnitude).astype(np.float16).view(np.uint16)


def random_blocks(rng: np.random.Generator, N: int, K: int) -> npt.NDArray[np.uint8]:
    """Random blocks uint8 [N, K/32 * 18] with ordinary scales."""
    blocks = rng.integers(0, 256, (N, K // 32, 18), np.uint8)
    blocks[:, :, :2] = ordinary_scales(rng, N, K).astype("<u2")[..., None].view(np.uint8)
    return blocks.reshape(N, K // 32 * 18)


def set_scale(blocks: npt.NDArray[np.uint8], d: int, block: int | None = None) -> None:
    """Give every block of every row, or only the one numbered ``block``, the half with bits d."""
    by_block = blocks.reshape(len(blocks), -1, 18)
    by_block[:, slice(None) if block is None else block, :2] = (d & 255, d >> 8)


def normal_input(rng: np.random.Generator, m: int, K: int) -> npt.NDArray[np.float32]:
    """Normal data [m, K]."""
    return rng.standard_normal((m, K), np.float32)


def vanishing(
    rng: np.random.Generator, N: int, K: int, m: int
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32]]:
    """Blocks and x [m, K] whose results are zeros, of a sign that rests on every step.

    The first 16 blocks, one for each pair of lanes, leave sums of -0: all terms are negative and
    too small. What the later blocks of a row add is +0 or -0, or too small again.
    """
    nibbles = np.full((N, K), 7, np.uint8)  # all weights are -d
    scales = np.full((N, K // 32), 0x0001, np.uint16)
    scales[:, 16:] = rng.choice([0x0001, 0x8001], (N, 1))
    x = np.full((m, K), 2.0**-149, np.float32)
    later = x[:, 512:]
    later[:] = rng.choice(np.array([0, -0.0, 2.0**-149], np.float32), (m, 1))
    return pack_blocks(scales, nibbles), x
