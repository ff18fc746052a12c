"""The package built against the Metal simulator: the shipped sources, and the hooks of the tests.

It never ships. `install()` makes it the `mlxops` that this process and its children import. With
MLXOPS_TEST_SOURCES in the environment the sources are those of that folder.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import metal_sim

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
FLAGS = [
    "-std=c11",
    "-D_GNU_SOURCE",
    "-DMLXOPS_METAL",
    '-DMLXOPS_VERSION="0.0.0.dev0"',
    "-O2",
    "-g",
    "-fPIC",
    "-ffp-contract=off",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-pthread",
]


def sources(repository: Path) -> list[Path]:
    """All that goes into the extension, but for the embedded shaders."""
    return [
        *sorted(repository.glob("csrc/**/*.c")),
        *sorted(repository.glob("csrc/metal/*.m")),
        HERE / "test_hooks.c",
    ]


def _fingerprint(repository: Path, simulator: metal_sim.MetalSim) -> str:
    digest = hashlib.sha256(str(simulator.library).encode() + sys.version.encode())
    digest.update(np.__version__.encode())
    folders = ("csrc", "shaders", "python", "tools")
    files = [path for folder in folders for path in (repository / folder).rglob("*")]
    for path in sorted([*files, *HERE.glob("*")]):
        if path.is_file() and path.suffix in {".c", ".h", ".m", ".metal", ".ptx", ".py", ".pyi"}:
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _compile(
    repository: Path, simulator: metal_sim.MetalSim, work: Path, cache: Path
) -> Sequence[Path]:
    """Object files; those that the cache has are not made again."""
    shaders = work / "shaders.c"
    embed = [sys.executable, str(repository / "tools" / "embed_shaders.py")]
    subprocess.run([*embed, str(repository / "shaders"), str(shaders)], check=True)
    python = sysconfig.get_paths()["include"]
    include = [repository / "csrc", metal_sim.HOME, python, np.get_include()]
    flags = [*FLAGS, "-include", str(HERE / "test_hooks.h"), *(f"-I{path}" for path in include)]

    # (Of the shaders' headers C includes this one alone.)
    shared = repository / "shaders" / "kernel_params.h"
    headers = [*repository.glob("csrc/**/*.h"), shared, *HERE.glob("*.h")]
    common = hashlib.sha256(repr(FLAGS).encode() + sys.version.encode() + np.__version__.encode())
    for header in sorted(headers):
        common.update(header.read_bytes())

    def compile_one(source: Path) -> Path:
        digest = common.copy()
        digest.update(source.name.encode() + source.read_bytes())
        target = cache / f"object-{digest.hexdigest()[:16]}.o"
        if not target.exists():
            new = work / f"{target.name}"
            objc = simulator.compile_flags if source.suffix == ".m" else []
            subprocess.run(["clang", *flags, *objc, "-c", source, "-o", new], check=True)
            new.rename(target)
        return target

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(compile_one, [*sources(repository), shaders]))


def build(repository: Path = REPOSITORY, cache: Path | None = None) -> Path:
    """Build the package unless the cache has it; return the folder to put on the path."""
    simulator = metal_sim.build()
    cache = cache or simulator.library.parent
    target = cache / f"package-{_fingerprint(repository, simulator)}"
    if target.exists():
        return target
    with tempfile.TemporaryDirectory(dir=cache) as directory:
        work = Path(directory)
        objects = _compile(repository, simulator, work, cache)
        package = work / "site" / "mlxops"
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(repository / "python" / "mlxops", package, ignore=ignored)
        extension = package / f"_core{sysconfig.get_config_var('EXT_SUFFIX')}"
        link = ["clang", "-shared", "-pthread", *map(str, objects), *simulator.link_flags, "-lm"]
        subprocess.run([*link, "-o", str(extension)], check=True)
        (work / "site").rename(target)
    return target


def install() -> None:
    """Put the simulated package before any other, here and in processes started from here."""
    folder = str(build(Path(os.environ.get("MLXOPS_TEST_SOURCES", REPOSITORY))))
    sys.path.insert(0, folder)
    path = [folder, str(HERE.parent), os.getenv("PYTHONPATH")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))
