"""Which GPU is offered, and what the process does without one."""

from __future__ import annotations

import pytest

import fresh_python
import mlxops as mo

SETUP = """
import metal_sim
control = metal_sim.build().control()
control.reset()
{setting}
import mlxops as mo
"""


def run(setting: str, code: str) -> str:
    """Run code in a process whose simulated machine is another."""
    return fresh_python.run(SETUP.format(setting=setting) + code).strip()


def test_the_gpu_comes_first() -> None:
    assert [device.name for device in mo.devices()] == ["metal", "cpu"]
    assert mo.devices()[0].description == "Apple GPU (simulated)"
    assert mo.devices().missing == {}
    assert mo.default_device().name == "metal"


MISSING = {
    "control.set_device_present(False)": "no Metal device",
    "control.set_apple_family(6)": "older than Apple7",
    "control.set_apple_family(0)": "older than Apple7",
    "control.fail_call(2)": "no command queue",
}


@pytest.mark.parametrize(("setting", "reason"), MISSING.items())
def test_without_a_gpu_the_cpu_is_the_default(setting: str, reason: str) -> None:
    code = """
import numpy as np
print([device.name for device in mo.devices()], mo.default_device().name)
print(mo.devices().missing["metal"])
print(mo.devices())
w = mo.Q4_0Matrix.quantize(np.ones((2, 32)))
print(mo.mul_mv_q4_0(w, np.ones(32, np.float32)))
try:
    mo.set_default_device("metal")
except mo.DeviceError as error:
    print(error)
print(control.live_objects_text() or "no objects")
print(control.reports() or "no reports")
"""
    lines = run(setting, code).splitlines()
    assert lines[0] == "['cpu'] cpu"
    assert reason in lines[1]
    assert reason in lines[2]
    assert lines[3] == "[32. 32.]"
    assert "metal" in lines[4]
    assert reason in lines[4]
    assert lines[5:] == ["no objects", "no reports"]


@pytest.mark.parametrize("version", [(13, 0), (14, 5), (15, 0), (26, 0)])
def test_mathematics_are_safe_on_every_system(version: tuple[int, int]) -> None:
    """On macOS 15 by mathMode, before by fastMathEnabled."""
    code = """
from metal_device.operations import assert_works, operations
for operation in operations().values():
    assert_works(operation)
assert control.compilations() >= 0 and control.dispatches() > 0
print(control.fast_math_libraries(), control.reports() or "no reports")
"""
    assert run(f"control.set_system_version{version}", code) == "0 no reports"


def test_a_forked_child_refuses_metal_and_uses_the_cpu() -> None:
    code = """
import os, sys
import numpy as np
w = mo.Q4_0Matrix.quantize(np.ones((2, 32)))
y = mo.mul_mv_q4_0(w, np.ones(32, np.float32))
calls = control.call_count()
child = os.fork()
if child == 0:
    status = 1
    try:
        assert mo.default_device().name == "cpu"
        assert y.tolist() == [32, 32]
        assert mo.mul_mv_q4_0(w, np.ones(32, np.float32)).tolist() == [32, 32]
        for call in (lambda: mo.mul_mv_q4_0(w, y, device="metal"),
                     lambda: mo.mul_mv_q4_0(w, np.ones(32, np.float32), device="metal"),
                     lambda: mo.qkv_split(y[:1].repeat(4), 1, 1, 2, device="metal")):
            try:
                call()
            except mo.DeviceError as error:
                assert "fork" in str(error), error
            except ValueError:
                pass
            else:
                raise AssertionError("not refused")
        objects = control.live_objects()
        del w, y
        mo.clear_cache()
        assert control.live_objects() == objects, "the child released an object"
        assert control.call_count() == calls, "the child called Metal"
        assert control.reports() == "", control.reports()
        status = 0
    finally:
        os._exit(status)
print(os.waitpid(child, 0)[1])
print(mo.mul_mv_q4_0(w, np.ones(32, np.float32), device="metal"))
"""
    assert run("", code).splitlines() == ["0", "[32. 32.]"]


def test_a_child_forked_before_the_first_use_refuses_metal() -> None:
    code = """
import os
child = os.fork()
if child == 0:
    names = [device.name for device in mo.devices()]
    os._exit(0 if names == ["cpu"] and "fork" in mo.devices().missing["metal"] else 1)
print(os.waitpid(child, 0)[1], mo.default_device().name)
"""
    assert run("", code) == "0 metal"


def test_a_gpu_that_is_no_default_is_found_all_the_same() -> None:
    """The system gives no default device; the list of all has one."""
    code = """
from metal_device.operations import assert_works, operations
control.fail_call(0)
for operation in operations().values():
    assert_works(operation)
print(mo.devices()[0].name, control.reports() or "no reports")
"""
    setting = "control.fail_call(1, True)"
    assert run(setting, "print(mo.default_device().name)" + code) == "metal\nmetal no reports"
