"""Write the PTX of the shaders, `shaders/ptx/NAME.ptx`, for the CUDA device.

PTX is a text that NVIDIA's driver compiles for the GPU that is there, so that a build needs nothing
of CUDA. It is made by NVRTC from what tools/msl_to_cuda.py translates, for GPUs of compute
capability 7.5 and later. An old NVRTC makes it, because a driver takes the PTX of its own and of
earlier releases only.

    pip install nvidia-cuda-nvrtc-cu11==11.8.89
    python tools/make_ptx.py
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
from importlib import metadata
from pathlib import Path

from msl_to_cuda import translate_shader

SHADERS = Path(__file__).resolve().parents[1] / "shaders"
PTX = SHADERS / "ptx"

PACKAGE, RELEASE = "nvidia-cuda-nvrtc-cu11", "11.8.89"
ARCHITECTURE = "compute_75"

# Every multiply-add is written as fma() where one rounding is meant, and subnormals are kept.
OPTIONS = [
    "--std=c++14",
    "--device-as-default-execution-space",
    "--fmad=false",
    "--ftz=false",
    "--prec-div=true",
    "--prec-sqrt=true",
]


class CompilationError(Exception):
    """What NVRTC has to say about a source."""


class Nvrtc:
    """The NVRTC of an installed package."""

    def __init__(self, package: str) -> None:
        """Raise importlib.metadata.PackageNotFoundError where it is not installed."""
        self.release = metadata.version(package)
        files = [file for file in metadata.files(package) or [] if "libnvrtc.so" in file.name]
        self._library = ctypes.CDLL(str(files[0].locate()))
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def _check(self, status: int, log: str = "") -> None:
        if status != 0:
            said = self._library.nvrtcGetErrorString(status).decode()
            raise CompilationError(f"NVRTC {self.release}: {said}\n{log}")

    def architectures(self) -> list[int]:
        """The compute capabilities that it compiles for, 75 for 7.5."""
        n = ctypes.c_int()
        self._check(self._library.nvrtcGetNumSupportedArchs(ctypes.byref(n)))
        found = (ctypes.c_int * n.value)()
        self._check(self._library.nvrtcGetSupportedArchs(found))
        return list(found)

    def _text(self, program: ctypes.c_void_p, what: str) -> str:
        size = ctypes.c_size_t()
        self._check(getattr(self._library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
        text = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._library, f"nvrtcGet{what}")(program, text))
        return text.value.decode()

    def compile(self, source: str, architecture: str = ARCHITECTURE) -> str:
        """PTX of CUDA C++; CompilationError for an error and for a warning."""
        options = [f"--gpu-architecture={architecture}", *OPTIONS]
        arguments = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        program = ctypes.c_void_p()
        self._check(
            self._library.nvrtcCreateProgram(
                ctypes.byref(program), source.encode(), b"shader", 0, None, None
            )
        )
        try:
            status = self._library.nvrtcCompileProgram(program, len(options), arguments)
            log = self._text(program, "ProgramLog")
            self._check(status, log)
            if log.strip():
                raise CompilationError(log)
            return self._text(program, "PTX")
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))


def shaders() -> list[Path]:
    """The shaders, each of which has a PTX file."""
    return sorted(SHADERS.glob("*.metal"))


def heading(shader: Path) -> str:
    """The first lines of a PTX file: what it was made from."""
    made_from = "\n".join([PACKAGE, RELEASE, ARCHITECTURE, *OPTIONS, translate_shader(shader)])
    digest = hashlib.sha256(made_from.encode()).hexdigest()
    return f"// Written by tools/make_ptx.py.\n// Made from {shader.name}, sha256 {digest}\n"


def make(shader: Path, nvrtc: Nvrtc) -> str:
    """The PTX file of a shader."""
    return heading(shader) + nvrtc.compile(translate_shader(shader))


def main() -> int:
    """Write all files."""
    try:
        nvrtc = Nvrtc(PACKAGE)
    except metadata.PackageNotFoundError:
        nvrtc = None
    if nvrtc is None or nvrtc.release != RELEASE:
        found = f"release {nvrtc.release} is" if nvrtc else "it is not"
        print(
            f"{PACKAGE} {RELEASE} is needed, {found} installed. Type:\n"
            f"    {sys.executable} -m pip install {PACKAGE}=={RELEASE}",
            file=sys.stderr,
        )
        return 1
    PTX.mkdir(exist_ok=True)
    for shader in shaders():
        (PTX / f"{shader.stem}.ptx").write_text(make(shader, nvrtc))
    return 0


if __name__ == "__main__":
    sys.exit(main())
