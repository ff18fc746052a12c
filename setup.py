"""What pyproject.toml cannot say: the C extension and its embedded shaders."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

sys.path.insert(0, "tools")
from embed_shaders import embed

# Every multiply-add is written as fma() where one rounding is meant. The compiler adds none.
COMPILE_ARGUMENTS = [
    "-std=c11",
    "-D_GNU_SOURCE",
    "-O3",
    "-ffp-contract=off",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-pthread",
]


class BuildExtension(build_ext):
    """Embeds the shaders, then builds the extension."""

    def build_extension(self, ext: Extension) -> None:
        """Build one extension with the embedded shaders beside its sources."""
        shaders = Path(self.build_temp) / "shaders.c"
        shaders.parent.mkdir(parents=True, exist_ok=True)
        shaders.write_text(embed(Path("shaders")))
        ext.sources = [*ext.sources, str(shaders)]
        version = self.distribution.get_version()
        ext.define_macros.append(("MLXOPS_VERSION", f'"{version}"'))
        super().build_extension(ext)


def files(*patterns: str) -> list[str]:
    """The sorted files of the patterns, relative to the root."""
    return sorted(str(path) for pattern in patterns for path in Path().glob(pattern))


CORE = files("csrc/*.c", "csrc/ops/*.c", "csrc/cpu/*.c", "csrc/python/*.c")

# The CUDA device, in builds for Linux: the driver's library is opened when it is asked for.
CUDA = files("csrc/cuda/*.c") if sys.platform == "linux" else []

# The Metal device, in builds for macOS.
METAL = ["csrc/metal/metal_device.m"] if sys.platform == "darwin" else []
# (Without CoreGraphics there is no default Metal device in a program that shows no windows.)
FRAMEWORKS = ["Foundation", "Metal", "CoreGraphics"] if METAL else []
if METAL:
    os.environ.setdefault("MACOSX_DEPLOYMENT_TARGET", "13.0")
    COMPILE_ARGUMENTS.append("-DMLXOPS_METAL")

setup(
    ext_modules=[
        Extension(
            "mlxops._core",
            sources=CORE + CUDA + METAL,
            depends=files("csrc/**/*.h", "shaders/*", "shaders/ptx/*"),
            libraries=["m", "dl"] if CUDA else ["m"],
            include_dirs=["csrc", numpy.get_include()],
            extra_compile_args=COMPILE_ARGUMENTS,
            extra_link_args=[
                "-pthread",
                *(argument for name in FRAMEWORKS for argument in ("-framework", name)),
            ],
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
