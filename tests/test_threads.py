"""Threads: how many there are, many callers at once, and a forked child."""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import fresh_python
import mlxops as mo
from canonical_reference import CanonicalReference
from mlxops.testing import assert_bits_equal
from q4_0_data import normal_input, random_blocks

PRINT_THREADS = """
    import warnings

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        import mlxops as mo
        print(mo.get_num_threads())
    print(*(warning.message for warning in caught))
"""

has_affinity = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="this system has no affinity of a process"
)
has_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def threads_of_a_fresh_process(variable: str) -> tuple[int, str]:
    """The number of threads after an import with MLXOPS_NUM_THREADS, and what was warned of."""
    number, warned = fresh_python.run(PRINT_THREADS, MLXOPS_NUM_THREADS=variable).split("\n", 1)
    return int(number), warned.strip()


@pytest.mark.usefixtures("restore_threads")
@pytest.mark.parametrize("number", [1, 2, 3, 5, 64])
def test_the_number_that_was_set_is_got(number: int) -> None:
    mo.set_num_threads(number)
    assert mo.get_num_threads() == number


@pytest.mark.parametrize("number", [0, -1, -(2**31), -(2**32) + 1])
def test_fewer_threads_than_one(number: int) -> None:
    before = mo.get_num_threads()
    with pytest.raises(ValueError, match=rf"(?<!\d){number}\b"):
        mo.set_num_threads(number)
    assert mo.get_num_threads() == before


@pytest.mark.usefixtures("restore_threads")
@pytest.mark.parametrize("number", [1000, 2**31, 2**32 + 1, 2**63, 2**64 + 1])
def test_an_absurd_number_of_threads(number: int) -> None:
    """It is limited to what makes sense, and never wraps around."""
    mo.set_num_threads(number)
    assert 64 <= mo.get_num_threads() <= number


@pytest.mark.parametrize("number", [None, 2.0, "2", [2]])
def test_a_number_of_threads_that_is_no_integer(number: Any) -> None:
    with pytest.raises(TypeError):
        mo.set_num_threads(number)


def test_the_environment_variable() -> None:
    assert threads_of_a_fresh_process("3") == (3, "")
    assert threads_of_a_fresh_process("64") == (64, "")


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5", "3 4", "0x", "9" * 30])
def test_a_nonsensical_environment_variable(value: str) -> None:
    number, warned = threads_of_a_fresh_process(value)
    assert number == threads_of_a_fresh_process("")[0]
    assert "MLXOPS_NUM_THREADS" in warned
    assert value in warned


@has_affinity
def test_no_more_threads_than_the_process_may_use() -> None:
    assert 1 <= threads_of_a_fresh_process("")[0] <= len(os.sched_getaffinity(0))


@has_affinity
def test_one_core_gives_one_thread() -> None:
    printed = fresh_python.run(
        """
        import os

        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        import mlxops as mo

        print(mo.get_num_threads())
        """,
        MLXOPS_NUM_THREADS="",
    )
    assert printed == "1\n"


# An operation large enough for several threads, with its result.
SETUP = """
    import os
    import sys
    import warnings

    import mlxops as mo
    import numpy as np

    N, K = 4096, 512
    rng = np.random.default_rng(1)
    weight = mo.Q4_0Matrix.quantize(rng.standard_normal((N, K), np.float32))
    x = rng.standard_normal((3, K), np.float32)
    expected = mo.mul_mv_q4_0(weight, x, device={device!r})

    def check():
        assert (mo.mul_mv_q4_0(weight, x, device={device!r}) == expected).all()
        a, b = mo.fused_dual_proj_q4_0(weight, weight, x, device={device!r})
        assert (a == expected).all() and (b == expected).all()
        q, k, v = mo.qkv_split(expected, 1024, 1024, 2048, device={device!r})
        assert (np.concatenate([q, k, v], axis=1) == expected).all()
"""


# The threads that the operations started.
POOL = """
    before = set(os.listdir("/proc/self/task"))

    def pool():
        return [int(task) for task in set(os.listdir("/proc/self/task")) - before]
"""


def run_with_pool(body: str) -> str:
    """What the body prints, in a process that has started no thread for an operation yet."""
    return fresh_python.run(SETUP.format(device="cpu") + POOL + body, MLXOPS_NUM_THREADS="1")


has_proc = pytest.mark.skipif(
    not os.path.isdir("/proc/self/task"), reason="this system does not list a process's threads"
)


@has_proc
def test_small_work_stays_on_the_caller() -> None:
    body = """
    mo.set_num_threads(4)
    small = mo.Q4_0Matrix.quantize(np.ones((32, 32), np.float32))
    for _ in range(1000):
        mo.mul_mv_q4_0(small, x[0, :32], device="cpu")
        mo.qkv_split(x, 128, 128, 256, device="cpu")
    print(len(pool()))
    check()
    print(len(pool()))
    """
    assert run_with_pool(body) == "0\n3\n"


@has_proc
def test_idle_threads_sleep() -> None:
    """They take no time of any processor once nothing has been asked of them for a while."""
    body = """
    import time

    mo.set_num_threads(4)
    check()
    assert pool()
    time.sleep(0.1)
    used = time.process_time()
    time.sleep(0.5)
    print(time.process_time() - used < 0.1)
    """
    assert run_with_pool(body) == "True\n"


@has_proc
@has_affinity
def test_threads_run_where_the_caller_may() -> None:
    """On its processors but the one that it is on; not at all where that is the only one."""
    body = """
    import time
    from pathlib import Path

    mo.set_num_threads(4)
    allowed = os.sched_getaffinity(0)
    check()
    time.sleep(0.1)
    for task in pool():
        assert os.sched_getaffinity(task) <= allowed
        assert len(os.sched_getaffinity(task)) >= max(1, len(allowed) - 1)
    os.sched_setaffinity(0, {min(allowed)})
    mo.set_num_threads(2)
    idle = [Path(f"/proc/self/task/{task}/schedstat").read_text() for task in pool()]
    check()
    assert idle == [Path(f"/proc/self/task/{task}/schedstat").read_text() for task in pool()]
    os.sched_setaffinity(0, allowed)
    check()
    for task in pool():
        assert os.sched_getaffinity(task) <= allowed
    print("done")
    """
    assert run_with_pool(body) == "done\n"


@pytest.mark.parametrize("number", [64, 1000])
def test_more_threads_than_cores_never_hang(number: int, device: str) -> None:
    body = f"""
    mo.set_num_threads({number})
    for _ in range(20):
        check()
    print("done")
    """
    assert fresh_python.run(SETUP.format(device=device) + body) == "done\n"


@has_affinity
def test_fewer_cores_than_threads_never_hang(device: str) -> None:
    """The cores are taken away after the threads were made."""
    body = """
    mo.set_num_threads(8)
    check()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for _ in range(20):
        check()
    print("done")
    """
    assert fresh_python.run(SETUP.format(device=device) + body) == "done\n"


@pytest.mark.usefixtures("restore_threads")
@pytest.mark.parametrize("threads", [1, 3])
def test_many_callers_at_once(
    threads: int, device: str, reference: CanonicalReference, rng: np.random.Generator
) -> None:
    mo.set_num_threads(threads)
    N, K, callers = 515, 96, 16
    blocks = [random_blocks(rng, N, K) for _ in range(callers)]
    weights = [mo.Q4_0Matrix.from_blocks(part, (N, K)) for part in blocks]
    inputs = [normal_input(rng, 1 + caller % 5, K) for caller in range(callers)]
    expected = [reference(part, x) for part, x in zip(blocks, inputs, strict=True)]

    def call_often(caller: int) -> None:
        for _ in range(25):
            a, b = mo.fused_dual_proj_q4_0(
                weights[caller], weights[caller - 1], inputs[caller], device=device
            )
            assert_bits_equal(a, expected[caller])
            assert_bits_equal(b, mo.mul_mv_q4_0(weights[caller - 1], inputs[caller], device=device))
            q, k, v = mo.qkv_split(a, 3, 12, 500, device=device)
            assert_bits_equal(np.concatenate([q, k, v], axis=-1), expected[caller])

    with ThreadPoolExecutor(callers) as pool:
        for _ in pool.map(call_often, range(callers)):
            pass


@pytest.mark.usefixtures("restore_threads")
def test_the_number_changes_while_others_call(
    device: str, reference: CanonicalReference, rng: np.random.Generator
) -> None:
    N, K = 2051, 96
    blocks, x = random_blocks(rng, N, K), normal_input(rng, 3, K)
    weight = mo.Q4_0Matrix.from_blocks(blocks, (N, K))
    expected = reference(blocks, x)

    def call_often(caller: int) -> None:
        for number in range(1, 40):
            if caller == 0:
                mo.set_num_threads(1 + number % 5)
            assert_bits_equal(mo.mul_mv_q4_0(weight, x, device=device), expected)

    with ThreadPoolExecutor(4) as pool:
        for _ in pool.map(call_often, range(4)):
            pass


@has_fork
@pytest.mark.parametrize("threads", [1, 4])
def test_a_forked_child_calls(threads: int) -> None:
    body = f"""
    mo.set_num_threads({threads})
    check()
    warnings.simplefilter("ignore", DeprecationWarning)
    for generation in range(3):
        child = os.fork()
        if child == 0:
            check()
            assert mo.get_num_threads() == {threads}
            assert mo.default_device().name == "cpu"
            grandchild = os.fork()
            if grandchild == 0:
                check()
                os._exit(0)
            assert os.waitpid(grandchild, 0)[1] == 0
            os._exit(0)
        check()
        assert os.waitpid(child, 0)[1] == 0
    print("done")
    """
    assert fresh_python.run(SETUP.format(device="cpu") + body) == "done\n"


@has_fork
def test_a_child_forked_while_others_call() -> None:
    """No lock that another thread held is left locked in the child."""
    body = """
    import threading
    import time

    warnings.simplefilter("ignore", DeprecationWarning)
    mo.set_num_threads(3)
    ended = threading.Event()

    def call_until_the_end():
        while not ended.is_set():
            check()

    callers = [threading.Thread(target=call_until_the_end) for _ in range(3)]
    for caller in callers:
        caller.start()
    for _ in range(20):
        child = os.fork()
        if child == 0:
            check()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        time.sleep(0.005)
    ended.set()
    for caller in callers:
        caller.join()
    print("done")
    """
    assert fresh_python.run(SETUP.format(device="cpu") + body, timeout=120) == "done\n"


def test_the_process_ends_by_itself(device: str) -> None:
    body = """
    mo.set_num_threads(5)
    check()
    print("done")
    """
    assert fresh_python.run(SETUP.format(device=device) + body, timeout=30) == "done\n"
