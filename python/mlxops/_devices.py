"""The devices of this process."""

from __future__ import annotations

from typing import NamedTuple

from mlxops import _core


class Device(NamedTuple):
    """Where operations run."""

    name: str
    """What `device=` and `set_default_device` take: "cpu"."""
    description: str
    """The hardware, for people."""

    def __repr__(self) -> str:
        return f"Device({self.name!r}, {self.description!r})"


def devices() -> list[Device]:
    """Return the devices, the preferred one first. The CPU is always among them."""
    return [Device(*pair) for pair in _core.devices()]


def default_device() -> Device:
    """Return the device that operations run on by default. It is one for the whole process."""
    name = _core.default_device()
    return next(device for device in devices() if device.name == name)
