"""Programs of tests/c with the C core built in, for this processor or another one."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
ROOT = TESTS.parent
FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-ffp-contract=off", "-pthread"]

# The functions that read and set a thread's rounding and flush-to-zero.
FLOAT_ENVIRONMENT = str(TESTS / "reference" / "float_environment.c")


def needed(tool: str, package: str) -> str:
    """The path of a program; without it the test is skipped, and fails where CI=true."""
    path = shutil.which(tool)
    if path is None:
        message = f"not run, for {tool} is missing: apt-get install {package}"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return path


def build(name: str, output: Path, extra: Sequence[str] = (), compiler: Sequence[str] = ()) -> None:
    """The program tests/c/``name``.c; flags and sources in ``extra`` come after the usual ones.

    The compiler is CC (default cc) unless given.
    """
    shaders = output.with_suffix(".shaders.c")
    embed = [sys.executable, "tools/embed_shaders.py", "shaders", str(shaders)]
    subprocess.run(embed, cwd=ROOT, check=True)
    folders = ["", "ops/", "cpu/", *["cuda/"] * (sys.platform == "linux")]
    sources = [path for folder in folders for path in ROOT.glob(f"csrc/{folder}*.c")]
    sources += [TESTS / "c" / f"{name}.c", shaders]
    command = [*(compiler or os.environ.get("CC", "cc").split()), *FLAGS, *extra]
    command += ["-I", str(ROOT / "csrc"), *map(str, sources), "-lm", "-ldl", "-o", str(output)]
    subprocess.run(command, check=True)
