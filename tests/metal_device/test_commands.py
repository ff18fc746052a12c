"""How operations become command buffers: one for each, several where the work is too much for one,
and an interrupt between two of them."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import NoReturn

import numpy as np
import pytest

import metal_sim
import mlxops as mo
from metal_device.conftest import WorkLimits
from metal_device.operations import NAMES, assert_works, operations
from mlxops.testing import assert_bits_equal
from q4_0_data import normal_input, random_blocks

N, K = 40, 96


@pytest.fixture
def weight(rng: np.random.Generator) -> mo.Q4_0Matrix:
    """A small matrix of 5 threadgroups."""
    return mo.Q4_0Matrix.from_blocks(random_blocks(rng, N, K), (N, K))


@pytest.mark.parametrize("name", NAMES)
def test_an_operation_is_one_dispatch(name: str, control: metal_sim.Control) -> None:
    operation = operations()[name]
    operation("metal")
    control.reset()
    operation("metal")
    assert control.dispatches() == 1


def test_an_encoder_is_one_command_buffer(
    weight: mo.Q4_0Matrix, rng: np.random.Generator, control: metal_sim.Control
) -> None:
    x = normal_input(rng, 3, K)
    with mo.Encoder("metal") as enc:
        a, b = enc.fused_dual_proj_q4_0(weight, weight, x)
        parts = enc.qkv_split(a, 8, 8, 24)
        assert control.command_buffers() == 0
    assert (control.command_buffers(), control.dispatches()) == (1, 2)
    assert_bits_equal(np.concatenate(parts, axis=1), mo.mul_mv_q4_0(weight, x, device="cpu"))
    assert_bits_equal(b, a)


# m, rows of x for one pass over the weights, and rows of the weight for one threadgroup.
@pytest.mark.parametrize(
    ("m", "inputs", "rows"),
    [(1, 1, 8), (2, 2, 8), (3, 4, 8), (4, 4, 8), (5, 8, 4), (8, 8, 4), (9, 8, 4), (100, 8, 4)],
)
def test_weights_are_read_once_for_several_inputs(
    m: int,
    inputs: int,
    rows: int,
    weight: mo.Q4_0Matrix,
    control: metal_sim.Control,
    rng: np.random.Generator,
) -> None:
    x = normal_input(rng, m, K)
    results = mo.fused_dual_proj_q4_0(weight, weight, x, device="metal")
    assert control.threadgroups() == -(-N // rows) * -(-m // inputs)
    for result in results:
        assert_bits_equal(result, mo.mul_mv_q4_0(weight, x, device="cpu"))


def test_the_wide_split_moves_four_channels_in_a_thread(
    control: metal_sim.Control, rng: np.random.Generator
) -> None:
    qkv = rng.standard_normal((3, 2560), np.float32)
    mo.qkv_split(qkv, 256, 256, 2048, device="metal")
    wide = control.memory_accesses()
    control.reset()
    mo.qkv_split(qkv, 255, 257, 2048, device="metal")
    assert control.memory_accesses() > 3 * wide


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 8, 100])
def test_a_large_projection_is_cut_along_m(
    rows: int,
    weight: mo.Q4_0Matrix,
    control: metal_sim.Control,
    work_limits: WorkLimits,
    rng: np.random.Generator,
) -> None:
    m = 17
    work_limits.set(2 * N * K * rows + 1, 1)
    x = normal_input(rng, m, K)
    outs = [np.empty((m, N), np.float32) for _ in range(2)]
    expected = mo.mul_mv_q4_0(weight, x, device="cpu")
    for out in (None, outs):
        control.reset()
        results = mo.fused_dual_proj_q4_0(weight, weight, x, out=out, device="metal")
        assert control.dispatches() == -(-m // rows)
        for result in results:
            assert_bits_equal(result, expected)


@pytest.mark.parametrize("rows", [1, 2, 5, 100])
@pytest.mark.parametrize("spans", [(4, 8, 20), (3, 8, 21)], ids=["wide", "narrow"])
def test_a_large_split_is_cut_along_seq(
    spans: tuple[int, int, int],
    rows: int,
    control: metal_sim.Control,
    work_limits: WorkLimits,
    rng: np.random.Generator,
) -> None:
    seq = 13
    work_limits.set(1, 32 * rows)
    qkv = rng.standard_normal((seq, 32), np.float32)
    results = mo.qkv_split(qkv, *spans, device="metal")
    assert control.dispatches() == -(-seq // rows)
    for result, expected in zip(results, np.split(qkv, np.cumsum(spans)[:2], axis=1), strict=True):
        assert_bits_equal(result, np.ascontiguousarray(expected))


def test_a_row_that_is_too_much_is_done_all_the_same(
    weight: mo.Q4_0Matrix, control: metal_sim.Control, work_limits: WorkLimits
) -> None:
    work_limits.set(1, 1)
    mo.mul_mv_q4_0(weight, np.ones((3, K), np.float32), device="metal")
    assert control.dispatches() == 3


def for_ever(call: Callable[[], object]) -> NoReturn:
    """Call again and again, until an exception ends it."""
    while True:
        call()


def interrupt_after(seconds: float) -> threading.Timer:
    """Press Ctrl-C in a while."""
    timer = threading.Timer(seconds, signal.raise_signal, [signal.SIGINT])
    timer.start()
    return timer


@pytest.mark.parametrize("name", ["projection", "split"])
@pytest.mark.parametrize("device", ["metal", "cpu"])
def test_an_interrupt_is_noticed_between_command_buffers(
    name: str, device: str, work_limits: WorkLimits, control: metal_sim.Control
) -> None:
    work_limits.set(1, 1)
    weight = mo.Q4_0Matrix.quantize(np.ones((2048, 2048), np.float32))
    x, qkv = np.ones((3000, 2048), np.float32), np.ones((200_000, 96), np.float32)
    calls: dict[str, Callable[[], object]] = {
        "projection": lambda: mo.mul_mv_q4_0(weight, x, device=device),
        "split": lambda: mo.qkv_split(qkv, 7, 19, 70, device=device),
    }
    timer = interrupt_after(0.3)
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        for_ever(calls[name])
    timer.join()
    assert time.monotonic() - start < 10  # all of it would take minutes on the simulator
    assert control.in_flight() == 0
    work_limits.set(2.0**30, 2.0**30)
    for operation in operations().values():
        assert_works(operation)


def test_an_interrupt_leaves_nothing_over(
    work_limits: WorkLimits, control: metal_sim.Control, weight: mo.Q4_0Matrix
) -> None:
    x = np.ones((20_000, K), np.float32)
    mo.mul_mv_q4_0(weight, x[:1], device="metal")
    mo.clear_cache()
    before = control.live_objects()
    work_limits.set(1, 1)
    timer = interrupt_after(0.2)
    with pytest.raises(KeyboardInterrupt):
        for_ever(lambda: mo.mul_mv_q4_0(weight, x, device="metal"))
    timer.join()
    mo.clear_cache()
    assert control.live_objects() - before <= 1, control.live_objects_text()  # the weight's wrapper


def test_an_exception_of_a_signal_handler_arrives(work_limits: WorkLimits) -> None:
    def handler(number: int, frame: object) -> None:
        raise LookupError("of the handler")

    weight = mo.Q4_0Matrix.quantize(np.ones((256, 256), np.float32))
    x = np.ones((5000, 256), np.float32)
    work_limits.set(1, 1)
    previous = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(LookupError, match="of the handler"):
            for_ever(lambda: mo.mul_mv_q4_0(weight, x, device="metal"))
    finally:
        signal.signal(signal.SIGALRM, previous)


def test_other_threads_run_while_one_waits(weight: mo.Q4_0Matrix) -> None:
    """The GIL is released: a thread that counts gets far while the operation runs."""
    x = np.ones((3000, K), np.float32)
    done = threading.Event()
    counted = 0

    def count() -> None:
        nonlocal counted
        while not done.is_set():
            counted += 1
            time.sleep(0.001)

    counter = threading.Thread(target=count)
    counter.start()
    mo.mul_mv_q4_0(weight, x, device="metal")
    done.set()
    counter.join()
    assert counted > 3


def test_many_threads_at_once(control: metal_sim.Control) -> None:
    shared = operations(m=5)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for name in ("mul_mv_q4_0", "fused_dual_proj_q4_0", "qkv_split", "qkv_split wide"):
                assert_works(shared[name])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert control.in_flight() == 0
