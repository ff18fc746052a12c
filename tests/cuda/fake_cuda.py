"""A libcuda without a GPU (fake_libcuda.c): its build, processes that have it, its control."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shlex
import subprocess
import tempfile
from pathlib import Path

import pytest

import fresh_python

HERE = Path(__file__).resolve().parent
SOURCES = [HERE / "fake_libcuda.c", HERE.parent / "reference" / "canonical_order.c"]


@functools.cache
def build(*flags: str) -> Path:
    """The folder with libcuda.so.1, made unless it has been made of the same sources."""
    compiler = [
        *shlex.split(os.environ.get("CC", "cc")),
        *("-std=c11", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", *flags),
        *("-fPIC", "-shared", "-pthread", "-Wl,-soname,libcuda.so.1"),
    ]
    digest = hashlib.sha256(repr((compiler, os.getuid())).encode())
    for source in SOURCES:
        digest.update(source.read_bytes())
    folder = Path(tempfile.gettempdir()) / f"mlxops-fake-cuda-{digest.hexdigest()[:16]}"
    library = folder / "libcuda.so.1"
    if not library.exists():
        folder.mkdir(mode=0o700, exist_ok=True)
        new = folder / f"{os.getpid()}.so"
        command = [*compiler, "-o", str(new), *map(str, SOURCES), "-lm"]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except FileNotFoundError:
            pytest.fail(f"no C compiler {command[0]!r}: install one or set CC")
        except subprocess.CalledProcessError as error:
            pytest.fail(f"{shlex.join(command)}\n{error.stderr}")
        new.rename(library)
    return folder


def environment(machine: str = "", folder: Path | None = None) -> dict[str, str]:
    """What makes a process find this libcuda, and which machine it is to have."""
    path = [str(HERE), str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        "LD_LIBRARY_PATH": str(folder or build()),
        "FAKE_CUDA": machine,
        "PYTHONPATH": os.pathsep.join(path),
    }


def run(code: str, *arguments: str, machine: str = "", folder: Path | None = None) -> str:
    """What a piece of Python prints in a process with this libcuda."""
    return fresh_python.run(code, *arguments, timeout=300, **environment(machine, folder))


class Control:
    """The fake driver of this process, which has been started by run()."""

    def __init__(self) -> None:
        library = self._library = ctypes.CDLL("libcuda.so.1")
        for name in ("failed", "transfers", "reports"):
            getattr(library, f"fake_cuda_{name}").restype = ctypes.c_char_p
        for name in ("allocated", "registered"):
            getattr(library, f"fake_cuda_{name}").restype = ctypes.c_size_t
        for name in ("calls", "depth", "retained", "in_flight"):
            getattr(library, f"fake_cuda_{name}").restype = ctypes.c_long

    def fail(self, name: str, n: int, code: int, for_good: bool = False) -> None:
        """The n-th call of a function ("": any) from now on returns the code; 0: none does."""
        self._library.fake_cuda_fail(name.encode(), ctypes.c_long(n), code, for_good)

    def failed(self) -> str:
        """The function that has failed, empty if none has."""
        return str(self._library.fake_cuda_failed().decode())

    def calls(self, name: str = "") -> int:
        """Calls of a function, or of all."""
        return int(self._library.fake_cuda_calls(name.encode()))

    def transfers(self) -> list[str]:
        """Transfers since the last time: ">bytes" to the device, "<bytes" from it."""
        return str(self._library.fake_cuda_transfers().decode()).split()

    def reports(self) -> str:
        """What rules were broken."""
        return str(self._library.fake_cuda_reports().decode())

    def allocated(self) -> int:
        """Bytes of device memory."""
        return int(self._library.fake_cuda_allocated())

    def registered(self) -> int:
        """Bytes of registered memory."""
        return int(self._library.fake_cuda_registered())

    def held(self) -> tuple[int, int, int]:
        """What a program may hold for good: device memory, registered memory, contexts."""
        return self.allocated(), self.registered(), int(self._library.fake_cuda_retained())

    def check(self) -> None:
        """No rule was broken, nothing is under way, and this thread's contexts are its own."""
        assert self.reports() == "", self.reports()
        assert self._library.fake_cuda_in_flight() == 0, "nobody waited for what was begun"
        assert self._library.fake_cuda_depth() == 0, "a context was left current"

    def deinitialise(self) -> None:
        """As when the process ends."""
        self._library.fake_cuda_deinitialise()
