"""Runs one kernel through the Metal API on the simulator (harness.m), from Python."""

from __future__ import annotations

import ctypes
import struct
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy.typing as npt

from metal_sim import HOME, MetalSim

Array = npt.NDArray[Any]
NONE, BUFFER, BYTES, THREADGROUP_MEMORY = range(4)


class _Argument(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_int),
        ("index", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("length", ctypes.c_size_t),
    )


class _Constant(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("index", ctypes.c_int), ("bits", ctypes.c_uint64))


class _Job(ctypes.Structure):
    _fields_ = (
        ("source", ctypes.c_char_p),
        ("kernel", ctypes.c_char_p),
        ("arguments", ctypes.POINTER(_Argument)),
        ("argument_count", ctypes.c_size_t),
        ("constants", ctypes.POINTER(_Constant)),
        ("constant_count", ctypes.c_size_t),
        ("grid", ctypes.c_size_t * 3),
        ("group", ctypes.c_size_t * 3),
        ("fast_math", ctypes.c_int),
    )


@dataclass
class Job:
    """One dispatch. Arrays are buffers (written back), bytes are setBytes, ints are lengths of
    threadgroup memory; their keys are the indices."""

    source: str
    kernel: str
    grid: Sequence[int]
    group: Sequence[int]
    arguments: Mapping[int, Array | bytes] = field(default_factory=dict)
    threadgroup_memory: Mapping[int, int] = field(default_factory=dict)
    constants: Mapping[int, int | float] = field(default_factory=dict)
    fast_math: bool = False


def compile_library(simulator: MetalSim, sources: Sequence[Path], target: Path) -> ctypes.CDLL:
    """Compiles Objective-C against the simulator, as free of warnings as what ships must be."""
    flags = ["-Wall", "-Wextra", "-Werror", "-O1", "-g", "-fPIC", "-fvisibility=hidden"]
    files = [str(source) for source in sources]
    command = ["clang", *flags, *simulator.compile_flags, "-shared", *files, "-o", str(target)]
    subprocess.run([*command, *simulator.link_flags], check=True)
    return ctypes.CDLL(str(target))


class Harness:
    def __init__(self, simulator: MetalSim, directory: Path) -> None:
        self._library = compile_library(simulator, [HOME / "harness.m"], directory / "harness.so")

    def run(self, job: Job) -> str:
        """Metal's error text, "" where all went well."""
        arguments = (_Argument * 62)()
        count = 0
        keep: list[object] = []
        for index, value in job.arguments.items():
            if isinstance(value, bytes):
                copy = ctypes.create_string_buffer(value, len(value))
                keep.append(copy)
                arguments[count] = _Argument(BYTES, index, ctypes.addressof(copy), len(value))
            else:
                arguments[count] = _Argument(BUFFER, index, value.ctypes.data, value.nbytes)
            count += 1
        for index, length in job.threadgroup_memory.items():
            arguments[count] = _Argument(THREADGROUP_MEMORY, index, None, length)
            count += 1
        constants = (_Constant * (len(job.constants) + 1))()
        for i, (index, number) in enumerate(job.constants.items()):
            is_float = isinstance(number, float)
            bits = struct.unpack("<I", struct.pack("<f" if is_float else "<i", number))[0]
            constants[i] = _Constant(3 if is_float else 29, index, bits)
        c_job = _Job(
            job.source.encode(),
            job.kernel.encode(),
            arguments,
            count,
            constants,
            len(job.constants),
            (ctypes.c_size_t * 3)(*job.grid),
            (ctypes.c_size_t * 3)(*job.group),
            job.fast_math,
        )
        error = ctypes.create_string_buffer(8192)
        failed = self._library.harness_run(ctypes.byref(c_job), error, ctypes.sizeof(error))
        return error.value.decode() if failed else ""
