"""The encoder: operations that are recorded and run together, and what is refused meanwhile."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

import mlxops as mo
from mlxops.testing import assert_bits_equal
from q4_0_data import normal_input, random_blocks

Float32 = npt.NDArray[np.float32]

N = K = 64


@pytest.fixture
def weights(rng: np.random.Generator) -> list[mo.Q4_0Matrix]:
    return [mo.Q4_0Matrix.from_blocks(random_blocks(rng, N, K), (N, K)) for _ in range(4)]


@pytest.fixture
def x(rng: np.random.Generator) -> Float32:
    return normal_input(rng, 3, K)


def test_the_results_are_those_of_the_functions(
    weights: list[mo.Q4_0Matrix], x: Float32, device: str
) -> None:
    with mo.Encoder(device) as enc:
        a, b = enc.fused_dual_proj_q4_0(weights[0], weights[1], x)
        c = enc.mul_mv_q4_0(weights[2], x)
        q, k, v = enc.qkv_split(x, 16, 16, 32)
        heads = enc.qkv_split(x, n_k_heads=2, d_k=8, n_v_heads=2, d_v=16)
        assert enc.device == device
    for got, expected in zip(
        (a, b, c, q, k, v, *heads),
        (
            *mo.fused_dual_proj_q4_0(weights[0], weights[1], x),
            mo.mul_mv_q4_0(weights[2], x),
            *(mo.qkv_split(x, 16, 16, 32) * 2),
        ),
        strict=True,
    ):
        assert_bits_equal(got, expected)


def test_an_operation_uses_the_result_of_an_earlier_one(
    weights: list[mo.Q4_0Matrix], x: Float32, device: str
) -> None:
    enc = mo.Encoder(device)
    y = x
    for weight in weights * 3:
        y = enc.mul_mv_q4_0(weight, y)
    part = enc.mul_mv_q4_0(weights[0], y[1])
    q, k, v = enc.qkv_split(y, 8, 8, 48)
    out = np.empty((3, N), np.float32)
    enc.mul_mv_q4_0(weights[1], y, out=out)
    last = enc.mul_mv_q4_0(weights[2], out[1:])
    enc.wait()

    expected = x
    for weight in weights * 3:
        expected = mo.mul_mv_q4_0(weight, expected)
    assert_bits_equal(y, expected)
    assert_bits_equal(part, mo.mul_mv_q4_0(weights[0], expected[1]))
    assert_bits_equal(np.concatenate([q, k, v], axis=1), expected)
    assert_bits_equal(out, mo.mul_mv_q4_0(weights[1], expected))
    assert_bits_equal(last, mo.mul_mv_q4_0(weights[2], out[1:]))


def test_inputs_are_copied_when_they_are_recorded(
    weights: list[mo.Q4_0Matrix], x: Float32, device: str
) -> None:
    before = x.copy()
    half = x.astype(np.float16)
    with mo.Encoder(device) as enc:
        a = enc.mul_mv_q4_0(weights[0], x)
        b = enc.mul_mv_q4_0(weights[0], half)
        x[:] = 0
        half[:] = 0
    assert_bits_equal(a, mo.mul_mv_q4_0(weights[0], before))
    assert_bits_equal(b, mo.mul_mv_q4_0(weights[0], before.astype(np.float16)))


def test_it_keeps_alive_what_it_needs(x: Float32, device: str, rng: np.random.Generator) -> None:
    blocks = random_blocks(rng, N, K)
    enc = mo.Encoder(device)
    result = enc.mul_mv_q4_0(mo.Q4_0Matrix.from_blocks(blocks, (N, K)), mo.asarray(x))
    out = np.empty((3, N), np.float32)
    view = out[:]
    enc.mul_mv_q4_0(mo.Q4_0Matrix.from_blocks(blocks, (N, K)), x.copy(), out=view)
    assert sys.getrefcount(view) > 2
    del view
    gc.collect()
    mo.clear_cache()
    enc.wait()
    expected = mo.mul_mv_q4_0(mo.Q4_0Matrix.from_blocks(blocks, (N, K)), x)
    assert_bits_equal(result, expected)
    assert_bits_equal(out, expected)


def test_nothing_recorded(device: str) -> None:
    with mo.Encoder(device):
        pass
    mo.Encoder(device).wait()


def test_the_default_device() -> None:
    assert mo.Encoder().device == mo.default_device().name
    assert mo.Encoder(mo.devices()[-1]).device == "cpu"


# ---- What is refused -----------------------------------------------------------------------------


def test_pending_results_are_not_read(
    weights: list[mo.Q4_0Matrix], x: Float32, device: str
) -> None:
    enc, other = mo.Encoder(device), mo.Encoder(device)
    pending = enc.mul_mv_q4_0(weights[0], x)
    out = np.zeros((3, N), np.float32)
    enc.mul_mv_q4_0(weights[0], x, out=out)
    target = np.zeros((3, N), np.float32)
    uses: list[Callable[[Float32], object]] = [
        lambda array: mo.mul_mv_q4_0(weights[1], array, device=device),
        lambda array: mo.mul_mv_q4_0(weights[1], array[2], device="cpu"),
        lambda array: mo.mul_mv_q4_0(weights[1], array[::-1], device=device),
        lambda array: mo.mul_mv_q4_0(weights[1], x, out=array, device=device),
        lambda array: mo.qkv_split(array, 16, 16, 32, device=device),
        lambda array: other.mul_mv_q4_0(weights[1], array),
        lambda array: other.mul_mv_q4_0(weights[1], x, out=array),
        lambda array: enc.mul_mv_q4_0(weights[1], array[::-1]),
    ]
    for array in (pending, out):
        for use in uses:
            with pytest.raises(RuntimeError, match="that an encoder has still to compute"):
                use(array)
    assert not target.any()
    enc.wait()
    other.wait()
    for array in (pending, out):
        for use in uses[:5]:
            use(array)


def test_two_operations_do_not_write_one_place(
    weights: list[mo.Q4_0Matrix], x: Float32, device: str
) -> None:
    out = np.zeros((4, N), np.float32)
    with mo.Encoder(device) as enc:
        enc.mul_mv_q4_0(weights[0], x, out=out[:3])
        result = enc.mul_mv_q4_0(weights[0], x)
        for taken in (out[:3], out[1:], result):
            with pytest.raises(ValueError, match="out overlaps a result"):
                enc.mul_mv_q4_0(weights[1], x, out=taken)
        enc.mul_mv_q4_0(weights[1], x[0], out=out[3])
    assert_bits_equal(out[:3], mo.mul_mv_q4_0(weights[0], x))
    assert_bits_equal(out[3], mo.mul_mv_q4_0(weights[1], x[0]))


def test_an_input_that_is_partly_pending(
    weights: list[mo.Q4_0Matrix], x: Float32, device: str
) -> None:
    out = np.zeros((4, N), np.float32)
    with mo.Encoder(device) as enc:
        enc.mul_mv_q4_0(weights[0], x, out=out[:3])
        with pytest.raises(RuntimeError, match="only partly a result"):
            enc.mul_mv_q4_0(weights[0], out)


def test_arguments_are_checked_when_they_are_recorded(
    weights: list[mo.Q4_0Matrix], x: Float32, device: str
) -> None:
    out = np.ones((3, N), np.float32)
    with mo.Encoder(device) as enc:
        good = enc.mul_mv_q4_0(weights[0], x)
        with pytest.raises(ValueError, match="the last dimension of x must be K"):
            enc.mul_mv_q4_0(weights[0], x[:, :32], out=out)
        with pytest.raises(TypeError, match="not a Q4_0Matrix"):
            enc.mul_mv_q4_0(x, x)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="run on its own device"):
            enc.mul_mv_q4_0(weights[0], x, device=device)  # type: ignore[call-arg]
        with pytest.raises(ValueError, match="overlaps x in memory"):
            enc.mul_mv_q4_0(weights[0], out, out=out)
    assert_bits_equal(good, mo.mul_mv_q4_0(weights[0], x))
    assert (out == 1).all()


def test_after_its_end(weights: list[mo.Q4_0Matrix], x: Float32, device: str) -> None:
    with mo.Encoder(device) as enc:
        enc.mul_mv_q4_0(weights[0], x)
        enc.wait()
        with pytest.raises(RuntimeError, match="the encoder has ended"):
            enc.mul_mv_q4_0(weights[0], x)
    for use in (enc.wait, enc.__enter__, lambda: enc.mul_mv_q4_0(weights[0], x)):
        with pytest.raises(RuntimeError, match="the encoder has ended"):
            use()


def test_another_thread(weights: list[mo.Q4_0Matrix], x: Float32, device: str) -> None:
    enc = mo.Encoder(device)
    result = enc.mul_mv_q4_0(weights[0], x)
    refused = []

    def use() -> None:
        uses = (
            enc.wait,
            enc.__enter__,
            lambda: enc.mul_mv_q4_0(weights[0], x),
            lambda: enc.__exit__(None, None, None),
            lambda: enc.__exit__(ValueError, None, None),
        )
        for call in uses:
            with pytest.raises(RuntimeError, match="belongs to the thread that made it"):
                call()
            refused.append(call)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert len(refused) == 5
    enc.wait()
    assert_bits_equal(result, mo.mul_mv_q4_0(weights[0], x))


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(mo.DeviceError, match="no device 'tpu'"):
        mo.Encoder("tpu")
    with pytest.raises(TypeError):
        mo.Encoder(device="cpu", more=1)  # type: ignore[call-arg]


# ---- Discarding ----------------------------------------------------------------------------------


def test_an_exception_discards_what_was_recorded(
    weights: list[mo.Q4_0Matrix], x: Float32, device: str
) -> None:
    out = np.ones((3, N), np.float32)
    own = mo.empty((3, N))
    own[:] = 2
    results: list[Float32] = []

    def fail() -> None:
        with mo.Encoder(device) as enc:
            results.extend(enc.fused_dual_proj_q4_0(weights[0], weights[1], x))
            enc.mul_mv_q4_0(weights[0], x, out=out)
            enc.mul_mv_q4_0(weights[0], x, out=own)
            results[0][:] = 1 / 0

    with pytest.raises(ZeroDivisionError):
        fail()
    assert all(np.isnan(each).all() for each in results)
    assert (out == 1).all()
    assert (own == 2).all()
    mo.mul_mv_q4_0(weights[0], results[0], out=out, device=device)


def test_an_encoder_that_is_forgotten(
    weights: list[mo.Q4_0Matrix], x: Float32, device: str
) -> None:
    enc = mo.Encoder(device)
    result = enc.mul_mv_q4_0(weights[0], x)
    del enc
    assert np.isnan(result).all()
    mo.mul_mv_q4_0(weights[0], result, device=device)


def test_nothing_leaks(weights: list[mo.Q4_0Matrix], device: str) -> None:
    class Array(np.ndarray[tuple[int, int], np.dtype[np.float32]]):
        """An array that a weak reference can point to."""

    out = np.zeros((3, N), np.float32).view(Array)
    gone = weakref.ref(out)
    matrices = [sys.getrefcount(weight) for weight in weights]
    for end in ("wait", "forget"):
        enc = mo.Encoder(device)
        for i in range(len(weights)):
            enc.mul_mv_q4_0(weights[i], np.ones((3, K), np.float32))
        if end == "wait":
            enc.mul_mv_q4_0(weights[0], np.ones((3, K), np.float32), out=out)
            enc.wait()
            del out
            assert gone() is None
        del enc
    assert [sys.getrefcount(weight) for weight in weights] == matrices


def test_many_encoders_in_many_threads(
    weights: list[mo.Q4_0Matrix], x: Float32, device: str
) -> None:
    expected = mo.mul_mv_q4_0(weights[1], mo.mul_mv_q4_0(weights[0], x))
    wrong = []

    def work() -> None:
        for _ in range(10):
            with mo.Encoder(device) as enc:
                y = enc.mul_mv_q4_0(weights[1], enc.mul_mv_q4_0(weights[0], x))
            if not np.array_equal(y.view(np.uint32), expected.view(np.uint32)):
                wrong.append(y)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
