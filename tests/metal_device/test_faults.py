"""Each call of Metal fails in turn: the right exception, no leak, and the device works again."""

from __future__ import annotations

import pytest

import fresh_python
from metal_device.operations import NAMES

# In a process of its own, since pipelines are made once. Prints a line for each call that failed.
PROGRAM = """
import gc, os, sys
import metal_sim
control = metal_sim.build().control()
control.reset()
import mlxops as mo
from metal_device.operations import assert_works, operations

operation = operations()[sys.argv[1]]
silent = sys.argv[2] == "silent"
operation("cpu")
mo.devices()

def attempt(n):
    mo.clear_cache()
    control.fail_call(n, silent)
    try:
        results = operation("metal")
    except (mo.DeviceError, MemoryError) as error:
        failed = control.failed_call()
        assert failed, f"an error without a fault: {error}"
        print(failed, "|", type(error).__name__, "|", error)
        return True
    finally:
        failed = control.failed_call()
        control.fail_call(0, False)
    assert not failed, f"{failed} failed unnoticed"
    return False

n = 1
while True:
    # In a child that has not used Metal yet the parent's state is untouched; but Metal refuses
    # children. So the faults hit one process, in the order in which its calls are made: what a
    # failed attempt has made already (the library, say) is not made again.
    before = control.live_objects()
    if not attempt(n):
        break
    gc.collect()
    mo.clear_cache()
    n += 1 if control.live_objects() == before else 0
    assert n < 100
assert control.reports() == "", control.reports()
assert control.in_flight() == 0
assert_works(operation)

# Everything is compiled now. Whatever fails from here on, no object is left over.
operation("metal")
gc.collect()
mo.clear_cache()
before = control.live_objects()
for n in range(1, 100):
    if not attempt(n):
        break
    gc.collect()
    mo.clear_cache()
    assert control.live_objects() == before, control.live_objects_text()
    assert control.in_flight() == 0
    assert_works(operation)
    gc.collect()
    mo.clear_cache()
assert n > 3, "hardly anything failed"
assert control.reports() == "", control.reports()
"""


@pytest.mark.parametrize("manner", ["silent", "with an error"])
@pytest.mark.parametrize("name", NAMES)
def test_every_call_fails_once(name: str, manner: str) -> None:
    lines = fresh_python.run(PROGRAM, name, manner).splitlines()
    failed = [line.split(" | ")[0] for line in lines]
    for call in ("Library", "Function", "Pipeline", "Buffer", "commandBuffer", "commit"):
        assert any(call in name for name in failed), f"{call} is not among {failed}"
    for line in lines:
        call, exception, message = line.split(" | ")
        expected = "MemoryError" if "Buffer" in call and "ommandBuffer" not in call else "Device"
        assert exception.startswith(expected), line
        assert message.startswith("Metal: "), line
        if expected == "Device":
            kernel = "qkv_split" if "qkv" in name else "_proj_q4_0" if "fused" in name else "mul_mv"
            assert kernel in message, line
