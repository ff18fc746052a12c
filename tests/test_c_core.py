"""The C core without Python: a C program against the sources, also under the sanitizers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-ffp-contract=off", "-pthread"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]


def build(program: Path, output: Path, extra: list[str]) -> None:
    shaders = output.with_suffix(".shaders.c")
    embed = [sys.executable, "tools/embed_shaders.py", "shaders", str(shaders)]
    subprocess.run(embed, cwd=ROOT, check=True)
    sources = [*ROOT.glob("csrc/*.c"), *ROOT.glob("csrc/ops/*.c"), *ROOT.glob("csrc/cpu/*.c")]
    compiler = os.environ.get("CC", "cc").split()
    command = [*compiler, *FLAGS, *extra, "-I", str(ROOT / "csrc"), str(program), str(shaders)]
    subprocess.run([*command, *map(str, sources), "-lm", "-o", str(output)], check=True)


@pytest.mark.parametrize("extra", [[], SANITIZERS], ids=["plain", "sanitized"])
def test_c_program(tmp_path: Path, extra: list[str]) -> None:
    program = tmp_path / "test_core"
    build(ROOT / "tests" / "c" / "test_core.c", program, extra)
    run = subprocess.run([program], capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout == "0 failures\n"
