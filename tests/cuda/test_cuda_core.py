"""The CUDA device without Python: a C program against the sources, also under the sanitizers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import core_program
import fake_cuda

SANITIZERS = {
    "plain": [],
    "addresses": ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"],
    "threads": ["-fsanitize=thread"],
}


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_c_program(sanitizer: str, tmp_path: Path) -> None:
    program = tmp_path / "test_cuda_core"
    wrap = "-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc"
    core_program.build("test_cuda_core", program, [*SANITIZERS[sanitizer], wrap])
    run = subprocess.run(
        [program],
        env={**os.environ, **fake_cuda.environment(), "TSAN_OPTIONS": "halt_on_error=1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout == "0 failures\n"
