"""What the numbers depend on: the processor, its caches, the versions."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import numpy as np

import mlxops as mo

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")

# Where the system does not say: more than most processors have.
ASSUMED_CACHE_BYTES = 64 << 20


def last_level_cache_bytes() -> int:
    """The size of the largest cache that the system tells of."""
    texts = [path.read_text().strip() for path in CACHES.glob("index*/size")]
    kibibytes = [int(text[:-1]) for text in texts if text.endswith("K")]
    return max(kibibytes, default=ASSUMED_CACHE_BYTES >> 10) << 10


def describe(device: str) -> dict[str, Any]:
    """The machine, the device and the versions, for the reader of a result."""
    descriptions = {each.name: each.description for each in mo.devices()}
    processor, instruction_set = descriptions["cpu"].rsplit(", ", 1)
    return {
        "device": device,
        "description": descriptions[device],
        "processor": processor,
        "instruction_set": instruction_set,
        "processors": os.cpu_count(),
        "threads": mo.get_num_threads(),
        "last_level_cache_bytes": last_level_cache_bytes(),
        "system": platform.platform(),
        "versions": {
            "mlxops": mo.__version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
    }
