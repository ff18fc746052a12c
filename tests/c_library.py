"""Compile a small C file of the tests and load it."""

import ctypes
import os
import shlex
import subprocess
from pathlib import Path

import pytest


def build(source: Path, directory: Path) -> ctypes.CDLL:
    """The shared library of one C file, made in ``directory`` with the compiler CC (default cc)."""
    library = directory / f"lib{source.stem}.so"
    command = [
        *shlex.split(os.environ.get("CC", "cc")),
        *("-std=c11", "-O1", "-ffp-contract=off", "-fPIC", "-shared"),
        *("-o", str(library), str(source), "-lm"),
    ]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.fail(f"no C compiler {command[0]!r}: install one (apt-get install gcc) or set CC")
    except subprocess.CalledProcessError as error:
        pytest.fail(f"{shlex.join(command)}\n{error.stderr}")
    return ctypes.CDLL(str(library))
