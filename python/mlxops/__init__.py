"""Fused dual Q4_0 projection and QKV split: one result on every device, bit for bit.

import mlxops as mo

wq = mo.Q4_0Matrix.quantize(Wq)                  # or mo.gguf.load(path)[name]
q, gate = mo.fused_dual_proj_q4_0(wq, wg, x)     # NumPy in, NumPy out
q, k, v = mo.qkv_split(qkv, 256, 256, 2048)
"""

from mlxops import gguf
from mlxops._core import (
    DeviceError,
    Encoder,
    Q4_0Matrix,
    __version__,
    clear_cache,
    empty,
    fused_dual_proj_q4_0,
    get_num_threads,
    mul_mv_q4_0,
    qkv_split,
    set_default_device,
    set_num_threads,
)
from mlxops._devices import Device, DeviceList, default_device, devices
from mlxops._memory import CacheInfo, Copies, asarray, cache_info, copies

__all__ = [
    "CacheInfo",
    "Copies",
    "Device",
    "DeviceError",
    "DeviceList",
    "Encoder",
    "Q4_0Matrix",
    "__version__",
    "asarray",
    "cache_info",
    "clear_cache",
    "copies",
    "default_device",
    "devices",
    "empty",
    "fused_dual_proj_q4_0",
    "get_num_threads",
    "gguf",
    "mul_mv_q4_0",
    "qkv_split",
    "set_default_device",
    "set_num_threads",
]
