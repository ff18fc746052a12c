"""The source distribution holds all that it is built and tested with."""

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent


@pytest.mark.skipif(not (REPOSITORY / ".git").exists(), reason="git knows what belongs to it")
def test_the_source_distribution_builds(tmp_path: Path) -> None:
    setup = "from setuptools.build_meta import build_sdist; build_sdist('dist')"
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=True, text=True
    ).stdout.split("\0")
    checkout = tmp_path / "checkout"
    for name in filter(None, tracked):
        target = checkout / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((REPOSITORY / name).read_bytes())
    subprocess.run([sys.executable, "-c", setup], cwd=checkout, check=True, capture_output=True)
    with tarfile.open(next((checkout / "dist").glob("*.tar.gz"))) as archive:
        packed = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    left_out = {
        name
        for name in tracked
        if name and not name.startswith((".ci/", ".github/")) and name not in packed
    }
    assert left_out <= {".clang-format", ".gitignore"}
