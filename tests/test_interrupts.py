"""Ctrl-C stops a long operation of the CPU device, and nothing but that operation."""

import os

import pytest

import fresh_python

# Operations of seconds, and a Ctrl-C as soon as one has written its first result. (The pages of
# an array of zeros are one page of the system's, until they are written to.)
SETUP = """
    import os
    import signal
    import sys
    import threading
    import time
    import warnings

    import numpy as np

    import mlxops as mo

    signal.signal(signal.SIGINT, signal.default_int_handler)
    mo.set_default_device("cpu")

    def ones(N, K):
        blocks = np.full((N, K // 32 * 18), 0x99, np.uint8)
        blocks[:, 0::18], blocks[:, 1::18] = 0, 0x3C
        return mo.Q4_0Matrix.from_blocks(blocks, (N, K))

    def operands_of_ones():
        # The result, in place of the zeros, will be 4096 everywhere.
        shape = (4096, 4096)
        return ones(*shape), np.ones(shape, np.float32), np.zeros(shape, np.float32)

    small, small_x = ones(4096, 512), np.linspace(0, 1, 3 * 512, dtype=np.float32).reshape(3, 512)
    expected = mo.mul_mv_q4_0(small, small_x)
    qkv_expected = np.split(expected, [96, 1000], axis=1)

    def next_calls_work():
        a, b = mo.fused_dual_proj_q4_0(small, small, small_x)
        assert (a == expected).all() and (b == expected).all()
        for part, wanted in zip(mo.qkv_split(a, 96, 904, 3096), qkv_expected, strict=True):
            assert (part == wanted).all()

    def when_it_has_begun(out, action):
        def wait():
            untouched = out.flat[0]
            started.set()
            while out.flat[0] == untouched:
                time.sleep(0.001)
            action()

        started = threading.Event()
        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        started.wait()
        return thread

    def press():
        os.kill(os.getpid(), signal.SIGINT)

    def interrupt(operation, out):
        presser = when_it_has_begun(out, press)
        try:
            operation()
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("it was not interrupted")
        presser.join()
        next_calls_work()
"""

PROJECTION = """
    N, K, m = {shape}
    weight, x, out = ones(N, K), np.zeros((m, K), np.float32), np.full((m, N), -1, np.float32)
    mo.set_num_threads({threads})
    for _ in range(2):
        out[:] = -1
        interrupt(lambda: mo.mul_mv_q4_0(weight, x, out=out), out)
        assert (out == -1).any(), "all was done before the interrupt was noticed"
    print("done")
"""

SPLIT = """
    seq, spans = 2**17, (256, 256, 3584)
    qkv = np.zeros((seq, sum(spans)), np.float32)
    qkv[0] = qkv[-1] = 1
    outs = [np.zeros((seq, span), np.float32) for span in spans]
    mo.set_num_threads({threads})
    interrupt(lambda: mo.qkv_split(qkv, *spans, out=outs), outs[0])
    assert outs[2][-1, -1] == 0, "all was done before the interrupt was noticed"
    print("done")
"""


def run(body: str, isa: str = "") -> None:
    assert fresh_python.run(SETUP + body, MLXOPS_CPU_ISA=isa) == "done\n"


@pytest.mark.parametrize("isa", ["", "scalar"])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "shape",
    [(8192, 4096, 8192), (2**19, 1024, 64), (64, 64, 2**20), (1, 32, 2**24)],
    ids=["square", "N huge", "m huge", "m huge, N 1"],
)
def test_a_projection(shape: tuple[int, int, int], threads: int, isa: str) -> None:
    run(PROJECTION.format(shape=shape, threads=threads), isa)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_split(threads: int) -> None:
    run(SPLIT.format(threads=threads))


@pytest.mark.parametrize("operation", ["quantize(values)", "dequantize()"])
def test_the_format(operation: str) -> None:
    """The exception comes out of the function, not after it."""
    run(
        f"""
    values, matrix = np.zeros((2**19, 1024), np.float32), ones(2**18, 1024)
    events = []
    mo.set_num_threads(1)
    timer = threading.Timer(0.05, press)
    sys.setprofile(lambda frame, event, function: events.append((event, function)))
    try:
        timer.start()
        matrix.{operation}
        raise AssertionError("it was not interrupted")
    except KeyboardInterrupt:
        sys.setprofile(None)
    assert any(
        event == "c_exception" and function.__name__ == "{operation.split("(")[0]}"
        for event, function in events
    )
    next_calls_work()
    print("done")
    """
    )


def test_nothing_is_left_over() -> None:
    """The memory of results that nobody will see is there for the next ones."""
    run(
        """
    weight, x = ones(4096, 4096), np.zeros((8192, 4096), np.float32)
    mo.clear_cache()
    freed = []
    for _ in range(3):
        threading.Timer(0.2, press).start()
        try:
            mo.fused_dual_proj_q4_0(weight, weight, x)
            raise AssertionError("it was not interrupted")
        except KeyboardInterrupt:
            freed.append(mo.cache_info().nbytes)
    assert freed[0] >= 2 * 4 * 8192 * 4096
    assert freed[1:] == freed[:-1]
    next_calls_work()
    print("done")
    """
    )


def test_a_call_of_another_thread_goes_on() -> None:
    """Ctrl-C is the main thread's. What others compute is not touched by it."""
    run(
        """
    weight, x, out = operands_of_ones()
    caller = threading.Thread(target=mo.mul_mv_q4_0, args=(weight, x), kwargs={"out": out})
    presser = when_it_has_begun(out, press)
    caller.start()
    try:
        while caller.is_alive():
            time.sleep(0.001)
        raise AssertionError("the main thread was not interrupted")
    except KeyboardInterrupt:
        assert (out == 0).any()
    caller.join()
    assert (out == 4096).all()
    presser.join()
    next_calls_work()
    print("done")
    """
    )


@pytest.mark.parametrize("threads", [1, 3])
def test_a_signal_handler_that_returns(threads: int) -> None:
    """It runs in the middle of the operation, which then goes on; it may call others itself."""
    run(
        f"""
    weight, x, out = operands_of_ones()
    handled = []

    def handler(number, frame):
        next_calls_work()
        handled.append((out == 0).any())

    signal.signal(signal.SIGINT, handler)
    mo.set_num_threads({threads})
    presser = when_it_has_begun(out, press)
    mo.mul_mv_q4_0(weight, x, out=out)
    presser.join()
    assert (out == 4096).all()
    assert handled == [True]
    next_calls_work()
    print("done")
    """
    )


def test_the_exception_of_a_signal_handler_arrives() -> None:
    run(
        """
    def handler(number, frame):
        raise LookupError("of the handler")

    signal.signal(signal.SIGINT, handler)
    weight, x, out = operands_of_ones()
    when_it_has_begun(out, press)
    try:
        mo.mul_mv_q4_0(weight, x, out=out)
    except LookupError as error:
        assert str(error) == "of the handler"
        assert (out == 0).any()
        next_calls_work()
        print("done")
    """
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("threads", [1, 3])
def test_a_signal_handler_that_forks(threads: int) -> None:
    """Parent and child both complete the operation, though one has lost its threads."""
    run(
        f"""
    warnings.simplefilter("ignore", DeprecationWarning)
    weight, x, out = operands_of_ones()
    children = []
    signal.signal(signal.SIGINT, lambda number, frame: children.append(os.fork()))
    mo.set_num_threads({threads})
    when_it_has_begun(out, press)
    mo.mul_mv_q4_0(weight, x, out=out)
    assert (out == 4096).all()
    next_calls_work()
    [child] = children
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    print("done")
    """
    )
