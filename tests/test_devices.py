"""Devices: which there are, and which one is the default."""

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fresh_python
import mlxops as mo
from mlxops.testing import assert_bits_equal
from q4_0_data import normal_input, random_blocks
from raising import raises


@pytest.fixture
def restore_default_device() -> Iterator[None]:
    before = mo.default_device()
    yield
    mo.set_default_device(before.name)


def test_the_cpu_is_always_there() -> None:
    names = [device.name for device in mo.devices()]
    assert "cpu" in names
    assert len(set(names)) == len(names)


def test_a_device_says_what_it_is() -> None:
    for device in mo.devices():
        assert isinstance(device.name, str)
        assert isinstance(device.description, str)
        assert device.description
        assert repr(device) == f"Device({device.name!r}, {device.description!r})"


def test_a_device_cannot_be_changed() -> None:
    device: Any = mo.devices()[0]
    with pytest.raises(AttributeError):
        device.name = "another"


def test_the_list_of_devices_is_the_callers_own() -> None:
    before = [device.name for device in mo.devices()]
    mo.devices().clear()
    assert [device.name for device in mo.devices()] == before


def test_the_first_device_is_the_default() -> None:
    assert mo.default_device().name == mo.devices()[0].name


@pytest.mark.usefixtures("restore_default_device")
def test_the_default_device_is_the_process_wide_one(device: str) -> None:
    mo.set_default_device(device)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(mo.default_device().name))
    thread.start()
    thread.join()
    assert mo.default_device().name == device
    assert seen == [device]


@pytest.mark.usefixtures("restore_default_device")
def test_the_default_device_gives_the_same_bits(device: str, rng: np.random.Generator) -> None:
    weight = mo.Q4_0Matrix.from_blocks(random_blocks(rng, 33, 96), (33, 96))
    x = normal_input(rng, 3, 96)
    expected = mo.mul_mv_q4_0(weight, x, device=device)
    mo.set_default_device(device)
    assert_bits_equal(mo.mul_mv_q4_0(weight, x), expected)
    assert_bits_equal(mo.mul_mv_q4_0(weight, x, device=None), expected)


@pytest.mark.usefixtures("restore_default_device")
def test_a_device_can_stand_for_its_name(device: str, rng: np.random.Generator) -> None:
    itself = next(item for item in mo.devices() if item.name == device)
    weight = mo.Q4_0Matrix.from_blocks(random_blocks(rng, 33, 96), (33, 96))
    x = normal_input(rng, 3, 96)
    assert_bits_equal(
        mo.mul_mv_q4_0(weight, x, device=itself), mo.mul_mv_q4_0(weight, x, device=device)
    )
    mo.set_default_device(itself)
    assert mo.default_device() == itself


def test_a_fork_does_not_disturb_the_parent(device: str) -> None:
    """Memory that a driver has pinned stays the parent's, whoever writes to it first."""
    fresh_python.run(
        """
        import os, sys
        import numpy as np
        import mlxops as mo

        w = mo.Q4_0Matrix.quantize(np.ones((1000, 32)))
        x = np.ones((7, 32), np.float32)
        mo.mul_mv_q4_0(w, x, device=sys.argv[1])
        for i in range(3):
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(writer)
                os.read(reader, 1)  # until the parent has closed its end
                os._exit(0)
            for value in range(5):
                y = mo.mul_mv_q4_0(w, x * value, device=sys.argv[1])
                assert (y == 32 * value).all(), (i, value, y)
            os.close(writer)
            os.waitpid(child, 0)
            os.close(reader)
        """,
        device,
    )


def test_an_unknown_default_is_refused_and_changes_nothing() -> None:
    before = mo.default_device().name
    with raises(mo.DeviceError, "tpu", "cpu"):
        mo.set_default_device("tpu")
    assert mo.default_device().name == before


@pytest.mark.parametrize("wrong", [None, 3, b"cpu"])
def test_a_default_that_is_no_name_is_refused(wrong: Any) -> None:
    before = mo.default_device().name
    with pytest.raises(TypeError):
        mo.set_default_device(wrong)
    assert mo.default_device().name == before
