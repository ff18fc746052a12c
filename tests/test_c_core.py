"""The C core without Python: a C program against the sources, also under the sanitizers."""

import subprocess
from pathlib import Path

import pytest

import core_program

SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]


@pytest.mark.parametrize("extra", [[], SANITIZERS], ids=["plain", "sanitized"])
def test_c_program(tmp_path: Path, extra: list[str]) -> None:
    program = tmp_path / "test_core"
    core_program.build("test_core", program, extra)
    run = subprocess.run([program], capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout == "0 failures\n"
