"""qkv_split equals NumPy's slices: every bit of every element, in its place."""

import numpy as np
import numpy.typing as npt
import pytest

import mlxops as mo
from mlxops.testing import assert_bits_equal

SPANS = [(256, 256, 2048), (1, 2, 3), (7, 5, 1), (1, 1, 1), (4, 4, 8), (4, 4, 6), (3, 300, 4)]


def distinguishable(*shape: int) -> npt.NDArray[np.float32]:
    """Elements with a bit pattern each of their own; NaNs with payloads are among them."""
    size = int(np.prod(shape))
    patterns = np.arange(size, dtype=np.uint32) * np.uint32(2654435761)  # odd: a bijection
    values: npt.NDArray[np.float32] = patterns.view(np.float32).reshape(shape)
    return values


def numpy_split(
    qkv: npt.NDArray[np.float32], q_sp: int, k_sp: int, v_sp: int
) -> list[npt.NDArray[np.float32]]:
    """The spans as NumPy slices."""
    assert qkv.shape[-1] == q_sp + k_sp + v_sp
    return np.split(qkv, [q_sp, q_sp + k_sp], axis=-1)


def assert_split(
    parts: tuple[npt.NDArray[np.float32], ...], expected: list[npt.NDArray[np.float32]]
) -> None:
    """Three contiguous arrays with the expected bits, NaN payloads included."""
    assert type(parts) is tuple
    for part, wanted in zip(parts, expected, strict=True):
        assert type(part) is np.ndarray
        assert part.flags.c_contiguous
        assert part.flags.writeable
        assert_bits_equal(part, wanted, nans_are_one=False)


def test_the_test_data_is_distinguishable() -> None:
    values = distinguishable(128, 2560)
    patterns = values.view(np.uint32)
    assert len(np.unique(patterns)) == values.size
    assert len(np.unique(patterns[np.isnan(values)])) > 1000


@pytest.mark.parametrize("seq", [1, 2, 3, 128, 4106])
@pytest.mark.parametrize("spans", SPANS, ids=str)
def test_spans(spans: tuple[int, int, int], seq: int, device: str) -> None:
    qkv = distinguishable(seq, sum(spans))
    assert_split(mo.qkv_split(qkv, *spans, device=device), numpy_split(qkv, *spans))


@pytest.mark.parametrize("seq", [1, 128])
@pytest.mark.parametrize(
    ("n_k_heads", "d_k", "n_v_heads", "d_v"), [(2, 128, 16, 128), (1, 3, 5, 7), (3, 2, 1, 1)]
)
def test_heads(n_k_heads: int, d_k: int, n_v_heads: int, d_v: int, seq: int, device: str) -> None:
    spans = (n_k_heads * d_k, n_k_heads * d_k, n_v_heads * d_v)
    qkv = distinguishable(seq, sum(spans))
    parts = mo.qkv_split(
        qkv, n_k_heads=n_k_heads, d_k=d_k, n_v_heads=n_v_heads, d_v=d_v, device=device
    )
    assert_split(parts, numpy_split(qkv, *spans))


def test_spans_by_keyword(device: str) -> None:
    qkv = distinguishable(4, 6)
    parts = mo.qkv_split(qkv, q_sp=1, k_sp=2, v_sp=3, device=device)
    assert_split(parts, numpy_split(qkv, 1, 2, 3))


def test_spans_as_numpy_integers(device: str) -> None:
    qkv = distinguishable(4, 6)
    parts = mo.qkv_split(qkv, np.int64(1), np.int32(2), np.uint8(3), device=device)
    assert_split(parts, numpy_split(qkv, 1, 2, 3))


@pytest.mark.parametrize("leading", [(), (1,), (2, 3), (2, 1, 5), (1, 1, 1, 4)], ids=str)
def test_leading_dimensions_are_kept(leading: tuple[int, ...], device: str) -> None:
    qkv = distinguishable(*leading, 13)
    assert_split(mo.qkv_split(qkv, 7, 5, 1, device=device), numpy_split(qkv, 7, 5, 1))


@pytest.mark.usefixtures("restore_threads")
@pytest.mark.parametrize("threads", [1, 2, 3, 4, 5, 64])
def test_any_number_of_threads(threads: int, device: str) -> None:
    mo.set_num_threads(threads)
    for seq, spans in [(1, (1, 2, 3)), (257, (255, 256, 1025))]:
        qkv = distinguishable(seq, sum(spans))
        assert_split(mo.qkv_split(qkv, *spans, device=device), numpy_split(qkv, *spans))


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("seq", [2047, 2048, 2049])
@pytest.mark.parametrize("spans", [(64, 321, 1663), (63, 1, 1984)], ids=str)
def test_large_splits_write_nothing_else(
    spans: tuple[int, int, int], seq: int, place: int, device: str
) -> None:
    """At 2048 rows and more, 16 MiB, the CPU goes around its caches: to any address."""
    qkv = distinguishable(seq, sum(spans))
    guard = 16
    memory = [np.full(guard + place + seq * n + guard, -1, np.float32) for n in spans]
    out = tuple(
        array[guard + place : -guard].reshape(seq, n)
        for array, n in zip(memory, spans, strict=True)
    )
    assert_split(mo.qkv_split(qkv, *spans, out=out, device=device), numpy_split(qkv, *spans))
    for array in memory:
        assert (array[: guard + place] == -1).all()
        assert (array[-guard:] == -1).all()


def test_the_results_share_no_memory(device: str) -> None:
    qkv = distinguishable(3, 6)
    q, k, v = mo.qkv_split(qkv, 1, 2, 3, device=device)
    kept = [part.copy() for part in (q, k, v)]
    qkv[:] = 0
    q[:] = 1
    assert_split((k, v), kept[1:])


def test_the_parts_of_a_projection(device: str, rng: np.random.Generator) -> None:
    """What the operation is for: one concatenated projection, then the split."""
    parts = [mo.Q4_0Matrix.quantize(rng.standard_normal((N, 64), np.float32)) for N in (12, 12, 40)]
    x = rng.standard_normal((5, 64), np.float32)
    qkv = mo.mul_mv_q4_0(mo.Q4_0Matrix.concat(parts), x, device=device)
    split = mo.qkv_split(qkv, 12, 12, 40, device=device)
    assert_split(split, [mo.mul_mv_q4_0(part, x, device=device) for part in parts])
