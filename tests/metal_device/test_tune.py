"""`python -m mlxops tune` on the simulated GPU, with shapes that it does in a moment."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

import mlxops as mo
from mlxops import _core, _tuning, tune
from mlxops.bench.measuring import Effort
from mlxops.bench.weights import Float32
from test_tuning import SHAPES, run

SHAPES_OF_ROWS = list(dict.fromkeys(rows for _, rows in SHAPES))


def small_classes(limits: Sequence[int]) -> list[tuple[int | None, int]]:
    """All classes, and small sizes that stand for them."""
    of_m = limits[0] == 1
    sizes = [*limits, 2 * limits[-1]] if of_m else [16] * (len(limits) + 1)
    return list(zip([*limits, None], sizes, strict=True))


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the choices are kept; they are put back afterwards."""
    monkeypatch.setattr(tune, "classes", small_classes)
    monkeypatch.setattr(tune, "K", 64)
    monkeypatch.setattr(tune, "COLD_BYTES", 1000)
    monkeypatch.setattr(tune, "EFFORT", Effort(rounds=1, burst_seconds=0.0))
    monkeypatch.setenv("MLXOPS_TUNING", str(tmp_path / "tuning.json"))
    before = {shape: _core.projection_choice("metal", *shape) for shape in SHAPES}
    yield tmp_path / "tuning.json"
    for shape, name in before.items():
        _core.set_projection_choice("metal", *shape, name)


def test_every_class_gets_a_kernel(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("tune") == 0
    lines = capsys.readouterr().out.splitlines()
    gpu = mo.devices()[0]
    assert lines[0].startswith(f"metal: {gpu.description}; ")
    assert lines[-1] == f"kept in {file}"
    (tuning,) = _tuning.read(file)
    assert (tuning.device, tuning.gpu) == (gpu.name, gpu.description)
    assert len(lines) == len(tuning.choices) + 3
    m_limits, row_limits = _core.projection_classes()
    assert len(tuning.choices) == (len(m_limits) + 1) * (len(row_limits) + 1)
    variants = _core.projection_variants()
    for shape, choice in zip(
        ((m, rows) for rows in SHAPES_OF_ROWS for m in (1, 2, 4, 5)), tuning.choices, strict=True
    ):
        assert _core.projection_choice("metal", *shape) == choice.variant
        assert choice.variant in choice.microseconds
        assert {variants[name] for name in choice.microseconds} == {variants[choice.variant]}
        assert len(choice.microseconds) > 1


def test_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("tune", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["device"] == "metal"
    assert json.loads(file.read_text())["gpus"] == [printed]


def test_a_kernel_with_other_bits_is_reported(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call = tune.call

    def wrong(
        variant: str, pair: tuple[mo.Q4_0Matrix, mo.Q4_0Matrix], x: Float32, device: str
    ) -> tuple[Float32, Float32]:
        a, b = call(variant, pair, x, device)
        return (a, np.nextafter(b, np.float32(9))) if variant.startswith("s4_r2_m2") else (a, b)

    monkeypatch.setattr(tune, "call", wrong)
    assert run("tune") == 1
    captured = capsys.readouterr()
    assert "s4_r2_m2_d1_g8 does not give the bits of plain_m2 on this GPU" in captured.err
    assert not file.exists()


@pytest.mark.parametrize("place", ["/dev/null", "."])
def test_what_is_no_file_is_not_replaced(
    place: str,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MLXOPS_TUNING", place)
    assert run("tune") == 1
    assert "is no file that can be replaced" in capsys.readouterr().err
    assert Path("/dev/null").is_char_device()
