"""Run a piece of Python in a process of its own."""

import os
import subprocess
import sys
import textwrap


def run(code: str, *arguments: str, timeout: float = 60, **environment: str) -> str:
    """What the code prints; it must end by itself, in time and without an error."""
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert process.returncode == 0, f"exit {process.returncode}: {process.stdout}{process.stderr}"
    return process.stdout
