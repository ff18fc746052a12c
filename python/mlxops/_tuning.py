"""The kernels that `python -m mlxops tune` found to be the fastest on this user's GPUs.

They are kept in a file in the user's cache folder, and used from a GPU's first operation on. A file
that is damaged, or of another version, is as good as none; so is what was found on another GPU.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mlxops import _core

FORMAT = 1

# More than all GPUs of a user can take.
MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class Choice:
    """The fastest kernel for a class of shapes."""

    m_up_to: int | None
    """The largest m; None where there is no end."""
    rows_up_to: int | None
    """The largest number of rows of all weights."""
    variant: str
    microseconds: dict[str, float]
    """What a call takes with each kernel that was tried."""


@dataclass(frozen=True)
class Tuning:
    """What was found on one GPU."""

    device: str
    gpu: str
    """Its description: what `mlxops.devices()` says."""
    choices: list[Choice]


def path() -> Path | None:
    """Where it is kept: MLXOPS_TUNING, or in the user's cache folder. None if there is none."""
    chosen = os.environ.get("MLXOPS_TUNING")
    if chosen is not None:
        return Path(chosen) if chosen else None
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base) / "mlxops" / "tuning.json"
    try:
        home = Path.home()
    except RuntimeError:  # a user without one
        return None
    return (
        home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "mlxops/tuning.json"
    )


def read(file: Path) -> list[Tuning]:
    """Return what is kept in a file. OSError if it cannot be read, ValueError if it is damaged."""
    if file.exists() and not file.is_file():
        raise ValueError("it is not a file")
    with file.open("rb") as stream:
        contents = stream.read(MAX_BYTES + 1)
    if len(contents) > MAX_BYTES:
        raise ValueError("it is too large")
    try:
        everything = json.loads(contents)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(everything, dict) or everything.get("format") != FORMAT:
        raise ValueError("it has another format")
    if everything.get("mlxops") != _core.__version__:
        raise ValueError(f"it is of mlxops {everything.get('mlxops')}")
    try:
        tunings = [tuning_of(each) for each in everything["gpus"]]
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"something is missing or of another kind: {error!r}") from None
    return tunings


def tuning_of(entry: dict[str, Any]) -> Tuning:
    """Return what a file says of one GPU. ValueError, TypeError or KeyError if it is not right."""
    tuning = Tuning(
        str(entry["device"]), str(entry["gpu"]), [Choice(**choice) for choice in entry["choices"]]
    )
    m_limits, row_limits = _core.projection_classes()
    variants = _core.projection_variants()
    for choice in tuning.choices:
        limits = (choice.m_up_to, choice.rows_up_to)
        known = limits[0] in (*m_limits, None) and limits[1] in (*row_limits, None)
        if not known or not {type(limit) for limit in limits} <= {int, type(None)}:
            raise ValueError(f"it has other classes of shapes: {choice}")
        if choice.variant not in variants:
            raise ValueError(f"there is no kernel {choice.variant!r}")
        if not all(isinstance(time, (int, float)) for time in choice.microseconds.values()):
            raise ValueError(f"the times are not numbers: {choice}")
    return tuning


def write(file: Path, tunings: Iterable[Tuning]) -> None:
    """Keep all this in a file, in place of what was there. OSError if that cannot be."""
    everything = {
        "what this is": "the fastest kernels for each class of shapes, by 'python -m mlxops tune'; "
        "without this file mlxops uses its defaults",
        "format": FORMAT,
        "mlxops": _core.__version__,
        "gpus": [asdict(each) for each in tunings],
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        new.write_text(json.dumps(everything, indent=2) + "\n")
        new.replace(file)
    finally:
        new.unlink(missing_ok=True)


def beyond(limit: int | None, limits: tuple[int, ...]) -> int:
    """Return a size of the class with this limit."""
    return limits[-1] + 1 if limit is None else limit


def use(tuning: Tuning) -> None:
    """Have the device use it from now on. ValueError if there is no such device."""
    m_limits, row_limits = _core.projection_classes()
    for choice in tuning.choices:
        m, rows = beyond(choice.m_up_to, m_limits), beyond(choice.rows_up_to, row_limits)
        _core.set_projection_choice(tuning.device, m, rows, choice.variant)


def apply(device: str, gpu: str) -> None:
    """Have a device use what was found on this GPU, if anything is kept that can be read."""
    file = path()
    try:
        tunings = read(file) if file else []
    except (OSError, ValueError):
        return
    for tuning in tunings:
        if (tuning.device, tuning.gpu) == (device, gpu):
            use(tuning)
