"""What `python -m mlxops tune` keeps: the file, and the choice of the fastest."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mlxops as mo
from mlxops import _core, _tuning, tune
from mlxops._tuning import Choice, Tuning

GPU = mo.Device("cuda", "GPU of a test")
CHOICES = [
    Choice(1, 2048, "plain_m1", {"plain_m1": 3.0, "s4_r1_m1_d1_g8": 4.5}),
    Choice(4, None, "s4_r2_m4_d1_g8", {"plain_m4": 7.0, "s4_r2_m4_d1_g8": 5.0}),
    Choice(None, 12288, "plain_m8", {}),
]
TUNING = Tuning(GPU.name, GPU.description, CHOICES)

SHAPES = [(m, rows) for m in (1, 2, 4, 5) for rows in (2048, 4096, 12288, 12289)]


def all_choices() -> dict[tuple[int, int], str]:
    """The kernels that the CUDA device would use."""
    return {shape: _core.projection_choice("cuda", *shape) for shape in SHAPES}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that is looked for; the choice is put back afterwards."""
    path = tmp_path / "folder" / "tuning.json"
    monkeypatch.setenv("MLXOPS_TUNING", str(path))
    before = all_choices()
    yield path
    for shape, name in before.items():
        _core.set_projection_choice("cuda", *shape, name)


def test_what_was_written_is_read(file: Path) -> None:
    tunings = [TUNING, Tuning("metal", "Apple Ünknown 🍎", [])]
    _tuning.write(file, tunings)
    assert _tuning.read(file) == tunings
    assert list(file.parent.iterdir()) == [file]


def test_people_can_read_it(file: Path) -> None:
    _tuning.write(file, [TUNING])
    lines = [line.strip() for line in file.read_text().splitlines()]
    assert "python -m mlxops tune" in lines[1]
    assert '"gpu": "GPU of a test",' in lines
    assert '"variant": "s4_r2_m4_d1_g8",' in lines


def test_it_is_used_on_this_gpu_alone(file: Path) -> None:
    before = all_choices()
    _tuning.write(file, [TUNING])
    _tuning.apply("cuda", "another GPU")
    _tuning.apply("metal", GPU.description)
    assert all_choices() == before
    _tuning.apply("cuda", GPU.description)
    changed = {(1, 2048): "plain_m1", (4, 12289): "s4_r2_m4_d1_g8", (5, 12288): "plain_m8"}
    assert all_choices() == before | changed


def test_the_later_one_replaces_the_earlier(file: Path) -> None:
    _tuning.write(file, [TUNING])
    _tuning.write(file, [])
    assert _tuning.read(file) == []


def whole(**changes: Any) -> dict[str, Any]:
    """A file's contents, with changes."""
    choice = {"m_up_to": 1, "rows_up_to": 2048, "variant": "plain_m1", "microseconds": {}}
    gpu = {
        "device": "cuda",
        "gpu": GPU.description,
        "choices": [choice | changes.pop("choice", {})],
    }
    return {"format": 1, "mlxops": mo.__version__, "gpus": [gpu]} | changes


DAMAGED = {
    "empty": b"",
    "cut off": json.dumps(whole()).encode()[:-5],
    "no JSON": b"variant = plain_m1",
    "no text": b"\xff\xfe\x00",
    "nested": b"[" * 100_000,
    "too large": b" " * (2 << 20),
    "a list": b"[]",
    "a number": b"1",
    "another format": json.dumps(whole(format=2)).encode(),
    "another version": json.dumps(whole(mlxops="0.0.9")).encode(),
    "no version": json.dumps({"format": 1, "gpus": []}).encode(),
    "no GPUs": json.dumps(whole(gpus=None)).encode(),
    "GPUs that are numbers": json.dumps(whole(gpus=[1])).encode(),
    "a GPU without choices": json.dumps(whole(gpus=[{"device": "cuda", "gpu": "x"}])).encode(),
    "choices that are text": json.dumps(
        whole(gpus=[{"device": "cuda", "gpu": "x", "choices": "abc"}])
    ).encode(),
    "another class of m": json.dumps(whole(choice={"m_up_to": 3})).encode(),
    "another class of rows": json.dumps(whole(choice={"rows_up_to": 1e300})).encode(),
    "a class that is no whole number": json.dumps(whole(choice={"m_up_to": 1.0})).encode(),
    "a class that is a truth": json.dumps(whole(choice={"m_up_to": True})).encode(),
    "a class that is a list": json.dumps(whole(choice={"rows_up_to": []})).encode(),
    "no such kernel": json.dumps(whole(choice={"variant": "s9"})).encode(),
    "a kernel that is a list": json.dumps(whole(choice={"variant": []})).encode(),
    "something more": json.dumps(whole(choice={"more": 1})).encode(),
    "times that are no table": json.dumps(whole(choice={"microseconds": 1})).encode(),
    "times that are text": json.dumps(whole(choice={"microseconds": {"a": "b"}})).encode(),
}


@pytest.mark.parametrize("contents", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_is_as_good_as_none(
    contents: bytes, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.parent.mkdir()
    file.write_bytes(contents)
    before = all_choices()
    with pytest.raises(ValueError, match=r"\w"):
        _tuning.read(file)
    _tuning.apply("cuda", GPU.description)
    assert all_choices() == before
    assert tune.kept(file) == []
    assert f"what is kept in {file} is not used: " in capsys.readouterr().err


def test_whole_is_not_damaged(file: Path) -> None:
    file.parent.mkdir()
    file.write_text(json.dumps(whole()))
    assert len(_tuning.read(file)[0].choices) == 1


@pytest.mark.parametrize("kind", ["nothing", "folder", "FIFO", "a link to itself", "unreadable"])
def test_what_is_no_file_is_as_good_as_none(kind: str, file: Path) -> None:
    file.parent.mkdir()
    if kind == "folder":
        file.mkdir()
    elif kind == "FIFO":
        os.mkfifo(file)
    elif kind == "a link to itself":
        file.symlink_to(file)
    elif kind == "unreadable":
        file.write_text(json.dumps(whole()))
        file.chmod(0)
    before = all_choices()
    _tuning.apply("cuda", "another GPU")
    assert all_choices() == before


# ---- Where it is ---------------------------------------------------------------------------------


def test_the_file_is_in_the_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLXOPS_TUNING")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert _tuning.path() == tmp_path / "mlxops" / "tuning.json"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    assert _tuning.path() == tmp_path / ".cache" / "mlxops" / "tuning.json"
    monkeypatch.setattr("sys.platform", "darwin")
    assert _tuning.path() == tmp_path / "Library" / "Caches" / "mlxops" / "tuning.json"


def test_there_may_be_no_cache_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("MLXOPS_TUNING")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert _tuning.path() is None
    _tuning.apply("cuda", GPU.description)
    monkeypatch.setattr(tune, "find_gpu", lambda: GPU)
    assert run("tune") == 1
    assert "MLXOPS_TUNING can name a file" in capsys.readouterr().err


# ---- The command ---------------------------------------------------------------------------------


def run(*arguments: str) -> int:
    """The exit status of a command, in this process."""
    from mlxops import __main__

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["mlxops", *arguments])
        return __main__.main()


def test_without_a_gpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(tune, "find_gpu", lambda: None)
    assert run("tune") == 1
    assert "there is no GPU here to be tuned" in capsys.readouterr().err


def test_show_and_forget(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tune, "find_gpu", lambda: GPU)
    assert run("tune", "--show") == 0
    assert "nothing is kept for GPU of a test: the defaults are used" in capsys.readouterr().out
    other = Tuning("metal", "another GPU", CHOICES[:1])
    _tuning.write(file, [TUNING, other])

    assert run("tune", "--show") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split("  ")[-1] == "plain_m1 3.0 us, s4_r1_m1_d1_g8 4.5 us"
    assert " ".join(lines[2].split()) == "> 12288 <= 4 s4_r2_m4_d1_g8 5.0 us, plain_m4 7.0 us"
    assert run("tune", "--show", "--json") == 0
    assert json.loads(capsys.readouterr().out)["choices"][0]["variant"] == "plain_m1"

    assert run("tune", "--forget") == 0
    assert _tuning.read(file) == [other]
    capsys.readouterr()
    assert run("tune", "--show") == 0
    assert "the defaults are used" in capsys.readouterr().out
    assert run("tune", "--forget") == 0


def test_show_and_forget_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        run("tune", "--show", "--forget")
    assert "not allowed with" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("times", "present", "expected"),
    [
        ({"a": 2.0, "b": 1.0}, "a", "b"),
        ({"a": 1.01, "b": 1.0}, "a", "a"),
        ({"a": 1.03, "b": 1.0}, "a", "b"),
        ({"a": 1.0, "b": 1.0}, "c", "a"),
        ({"a": 1.0}, "a", "a"),
    ],
)
def test_a_kernel_must_be_clearly_faster(
    times: dict[str, float], present: str, expected: str
) -> None:
    assert tune.fastest(times, present) == expected


def test_a_file_that_cannot_be_written(file: Path) -> None:
    file.parent.write_text("a file where the folder should be")
    with pytest.raises(OSError, match="exists"):
        _tuning.write(file, [TUNING])
