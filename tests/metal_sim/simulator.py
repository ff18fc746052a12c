"""Builds the Metal simulator, says how to compile against it, and controls it.

    simulator = metal_sim.build()
    subprocess.run(["clang", *simulator.compile_flags, "-c", "backend.m"])
    subprocess.run(["clang", "-shared", "backend.o", *simulator.link_flags])
    control = simulator.control()
    ...
    assert control.reports() == ""

The library is kept in a cache, under a name made from all that it is built from.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HOME = Path(__file__).resolve().parent
SOURCES = (
    "control.c",
    "text.c",
    "front_end.c",
    "spaces.c",
    "library.c",
    "flight.c",
    "memory.c",
    "arithmetic.c",
    "executor.c",
    "fiber.c",
    "foundation.m",
    "device.m",
    "commands.m",
)
C_FLAGS = (
    "-std=gnu11",
    "-D_GNU_SOURCE",
    "-O2",
    "-g",
    "-fPIC",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-nullability-completeness",
)


class MetalSimError(RuntimeError):
    """The simulator cannot be built here; the text says what to do."""


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise MetalSimError(f"{' '.join(command)}\n{done.stdout}")
    return done.stdout


def _gcc_directory() -> Path:
    """Where GCC keeps libobjc and its headers (Debian: libobjc-12-dev, which clang brings)."""
    found = sorted(Path("/usr/lib/gcc").glob("*/*/include/objc/objc.h"))
    if not found:
        raise MetalSimError("the Objective-C runtime is missing: apt-get install clang")
    return found[-1].parents[2]


def _clang() -> str:
    clang = shutil.which("clang")
    if clang is None:
        raise MetalSimError("clang is missing: apt-get install clang")
    return clang


def _check_processor() -> None:
    cpuinfo = Path("/proc/cpuinfo").read_text()
    if os.uname().machine == "x86_64" and not {"fma", "f16c"} <= set(cpuinfo.split()):
        raise MetalSimError("the Metal simulator needs a processor with FMA and F16C")


def default_cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "mlxops-metal-sim"


@dataclass(frozen=True)
class MetalSim:
    """A built simulator."""

    library: Path
    objc_flags: tuple[str, ...]
    gcc_directory: Path

    @property
    def compile_flags(self) -> list[str]:
        """For C and Objective-C that includes Foundation, Metal or metal_sim.h."""
        return [*self.objc_flags, f"-I{HOME}"]

    @property
    def link_flags(self) -> list[str]:
        return [
            str(self.library),
            f"-Wl,-rpath,{self.library.parent}",
            f"-L{self.gcc_directory}",
            "-lobjc",
        ]

    def control(self) -> Control:
        return Control(self.library)


def _objc_flags(gcc_directory: Path) -> tuple[str, ...]:
    return (
        "-fobjc-runtime=gcc",
        "-fconstant-string-class=NSConstantString",
        f"-I{HOME / 'include'}",
        "-idirafter",
        str(gcc_directory / "include"),
    )


def _fingerprint(clang: str) -> str:
    """Changes with every file that the simulator is made from, its compiler and its flags."""
    digest = hashlib.sha256(_run([clang, "--version"]).encode())
    for path in sorted(HOME.rglob("*")):
        inside = path.relative_to(HOME).parts[0]
        if path.is_file() and (inside in ("include", "msl") or path.suffix in (".c", ".h", ".m")):
            digest.update(str(path.relative_to(HOME)).encode() + b"\0" + path.read_bytes())
    digest.update(repr((C_FLAGS, SOURCES, str(HOME))).encode())
    return digest.hexdigest()[:16]


def build(cache_directory: Path | None = None) -> MetalSim:
    """Builds the simulator, unless the cache has it. Raises MetalSimError where it cannot."""
    _check_processor()
    clang, gcc_directory = _clang(), _gcc_directory()
    objc_flags = _objc_flags(gcc_directory)
    cache = (cache_directory or default_cache_directory()).resolve()
    name = _fingerprint(clang)
    library = cache / name / f"libmetalsim-{name}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        defines = [
            f'-DMETAL_SIM_HOME="{HOME}"',
            f'-DMETAL_SIM_CLANG="{clang}++"',
            f'-DMETAL_SIM_LIBRARY="{library}"',
            f'-DMETAL_SIM_BUILD="{name}"',
            f'-DMETAL_SIM_CACHE="{cache / name / "shaders"}"',
        ]

        with tempfile.TemporaryDirectory(dir=library.parent) as work:

            def compile_one(source: str) -> str:
                target = f"{work}/{source}.o"
                flags = objc_flags if source.endswith(".m") else ()
                _run([clang, *C_FLAGS, *flags, *defines, "-c", str(HOME / source), "-o", target])
                return target

            with ThreadPoolExecutor(os.cpu_count()) as pool:
                objects = list(pool.map(compile_one, SOURCES))
            linked = f"{work}/linked.so"
            gcc = [f"-L{gcc_directory}", "-lobjc", "-ldl", "-lpthread", "-lrt", "-lm"]
            soname = f"-Wl,-soname,{library.name}"
            _run([clang, "-shared", soname, *objects, *gcc, "-o", linked])
            os.replace(linked, library)
    return MetalSim(library, objc_flags, gcc_directory)


def check_deployment_target(source: Path, version: str = "13.0", flags: Sequence[str] = ()) -> str:
    """What clang has to say of an Objective-C file compiled for macOS on arm64: "" or its warnings,
    of API newer than the deployment target above all. Apple's names come from the stand-in headers,
    the C library's from this machine's."""
    machine = os.uname().machine
    triplet = Path(f"/usr/include/{machine}-linux-gnu")
    command = [
        _clang(),
        *("-target", f"arm64-apple-macos{version}", "-fsyntax-only", "-std=gnu11"),
        *("-Wall", "-Wextra", "-Wunguarded-availability"),
        *("-nostdlibinc", f"-isystem{HOME / 'apple'}", f"-I{HOME / 'include'}"),
        # glibc's headers must take the target for this machine, and define __nonnull themselves.
        *("-U__nonnull", *(["-D__x86_64__"] if machine == "x86_64" else [])),
        *(f"-isystem{triplet}", "-isystem/usr/include", *flags, str(source)),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.stdout


class Control:
    """metal_sim.h for Python; each method is the function of that name."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))

    def _text(self, name: str) -> str:
        function = getattr(self._library, name)
        function.restype = ctypes.c_char_p
        value: bytes = function()
        return value.decode(errors="replace")

    def _count(self, name: str) -> int:
        function = getattr(self._library, name)
        function.restype = ctypes.c_size_t
        value: int = function()
        return value

    def reset(self) -> None:
        self._library.metal_sim_reset()

    def reports(self) -> str:
        return self._text("metal_sim_reports")

    def start_counting_objects(self) -> None:
        self._library.metal_sim_start_counting_objects()

    def live_objects(self) -> int:
        function = self._library.metal_sim_live_objects
        function.restype = ctypes.c_long
        count: int = function()
        return count

    def live_objects_text(self) -> str:
        return self._text("metal_sim_live_objects_text")

    def in_flight(self) -> int:
        return self._count("metal_sim_in_flight")

    def set_reverse(self, reverse: bool) -> None:
        self._library.metal_sim_set_reverse(ctypes.c_bool(reverse))

    def set_sampled_threadgroups(self, count: int) -> None:
        self._library.metal_sim_set_sampled_threadgroups(ctypes.c_size_t(count))

    def set_status_reads(self, reads: int) -> None:
        self._library.metal_sim_set_status_reads(ctypes.c_uint(reads))

    def set_watchdog(self, milliseconds: int) -> None:
        self._library.metal_sim_set_watchdog(ctypes.c_uint(milliseconds))

    def set_device_present(self, present: bool) -> None:
        self._library.metal_sim_set_device_present(ctypes.c_bool(present))

    def set_apple_family(self, family: int) -> None:
        self._library.metal_sim_set_apple_family(ctypes.c_int(family))

    def set_system_version(self, major: int, minor: int = 0) -> None:
        self._library.metal_sim_set_system_version(ctypes.c_int(major), ctypes.c_int(minor))

    def set_max_buffer_length(self, length: int) -> None:
        self._library.metal_sim_set_max_buffer_length(ctypes.c_size_t(length))

    def set_max_total_threads_per_threadgroup(self, threads: int) -> None:
        function = self._library.metal_sim_set_max_total_threads_per_threadgroup
        function(ctypes.c_size_t(threads))

    def fail_call(self, n: int, silent: bool = False) -> None:
        self._library.metal_sim_fail_call(ctypes.c_size_t(n), ctypes.c_bool(silent))

    def call_count(self) -> int:
        return self._count("metal_sim_call_count")

    def failed_call(self) -> str:
        return self._text("metal_sim_failed_call")

    def forbid(self, start: int, length: int) -> None:
        self._library.metal_sim_forbid(ctypes.c_void_p(start), ctypes.c_size_t(length))

    def command_buffers(self) -> int:
        return self._count("metal_sim_command_buffers")

    def dispatches(self) -> int:
        return self._count("metal_sim_dispatches")

    def threadgroups(self) -> int:
        return self._count("metal_sim_threadgroups")

    def memory_accesses(self) -> int:
        return self._count("metal_sim_memory_accesses")

    def fast_math_libraries(self) -> int:
        return self._count("metal_sim_fast_math_libraries")

    def compilations(self) -> int:
        return self._count("metal_sim_compilations")

    def set_shader_cache(self, directory: Path) -> None:
        self._library.metal_sim_set_shader_cache(ctypes.c_char_p(str(directory).encode()))


INCLUDE = re.compile(r'^[ \t]*#include "([^"]+)".*$', re.MULTILINE)


def inline_includes(path: Path) -> str:
    """A shader as one string: the headers beside it stand in their #include's place."""
    text = path.read_text()

    def header(match: re.Match[str]) -> str:
        name = match.group(1)
        line = text.count("\n", 0, match.start()) + 2
        return (
            f'#line 1 "{name}"\n{inline_includes(path.parent / name)}\n#line {line} "{path.name}"'
        )

    return f'#line 1 "{path.name}"\n{INCLUDE.sub(header, text)}' if "#include" in text else text
