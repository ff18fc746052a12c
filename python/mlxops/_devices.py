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


class DeviceList(list[Device]):
    """The devices, the preferred one first, and why others are missing."""

    missing: dict[str, str]
    """The reason by the name of the device, of those that this build knows."""

    def __init__(self) -> None:
        super().__init__(Device(*pair) for pair in _core.devices())
        self.missing = dict(_core.missing_devices())

    def __repr__(self) -> str:
        reasons = [f"{name}: {reason}" for name, reason in self.missing.items()]
        return super().__repr__() + (f" (missing: {'; '.join(reasons)})" if reasons else "")


def devices() -> DeviceList:
    """Return the devices, the preferred one first. The CPU is always among them.

    The attribute `missing` of the list, and its repr, say why a GPU is not.
    """
    return DeviceList()


def default_device() -> Device:
    """Return the device that operations run on by default. It is one for the whole process."""
    name = _core.default_device()
    return next(device for device in devices() if device.name == name)
