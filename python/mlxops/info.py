"""The command that says what is there: devices, why one is missing, threads, memory, tuning."""

from __future__ import annotations

import argparse
import json
import os
import platform
from typing import Any

import numpy as np

import mlxops as mo
from mlxops import _tuning

ENVIRONMENT = ("MLXOPS_CPU_ISA", "MLXOPS_NUM_THREADS", "MLXOPS_TUNING")


def collect() -> dict[str, Any]:
    """Everything, for the reader of a bug report."""
    devices = mo.devices()
    cache = mo.cache_info()
    file = _tuning.path()
    return {
        "mlxops": mo.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "system": platform.platform(),
        "devices": {device.name: device.description for device in devices},
        "default_device": mo.default_device().name,
        "missing_devices": devices.missing,
        "threads": mo.get_num_threads(),
        "cache": {"nbytes": cache.nbytes, "limit": cache.limit},
        "tuning": {"file": str(file) if file else None, "state": tuning_state()},
        "environment": {name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
    }


def tuning_state() -> str:
    """Whether there are choices of kernels, for people."""
    file = _tuning.path()
    try:
        tunings = _tuning.read(file) if file else []
    except FileNotFoundError:
        tunings = []
    except (OSError, ValueError) as error:
        return f"not used: {error}"
    gpus = ", ".join(tuning.gpu for tuning in tunings)
    return f"for {gpus}" if gpus else "none; python -m mlxops tune makes one for a GPU"


def lines(found: dict[str, Any]) -> list[str]:
    """The same for people."""
    versions = f"Python {found['python']}, NumPy {found['numpy']}, {found['system']}"
    default = found["default_device"]
    said = [f"mlxops {found['mlxops']}; {versions}"]
    for name, description in found["devices"].items():
        said.append(f"{name}: {description}{' (the default)' if name == default else ''}")
    said += [f"{name}: not here: {why}" for name, why in found["missing_devices"].items()]
    cache = found["cache"]
    said.append(f"threads of the CPU device: {found['threads']}")
    said.append(f"memory kept for later: {cache['nbytes']} bytes, {cache['limit']} at most")
    said.append(f"tuning: {found['tuning']['state']} ({found['tuning']['file']})")
    said += [f"{name}={value}" for name, value in found["environment"].items()]
    return said


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "info",
        help="print versions, devices, threads, memory and tuning",
        description="Print what is there: versions, the devices and why one is missing, the "
        "instruction set, threads, the memory cache, and whether a GPU has been tuned.",
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print it."""
    found = collect()
    print(json.dumps(found, indent=1) if arguments.json else "\n".join(lines(found)))
    return 0
