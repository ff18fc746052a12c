"""`python -m mlxops info`: for people and as JSON."""

from __future__ import annotations

import json

import pytest

import mlxops as mo
from test_tuning import run


def test_it_says_what_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("info") == 0
    said = capsys.readouterr().out
    assert said.startswith(f"mlxops {mo.__version__}; Python ")
    for device in mo.devices():
        assert f"{device.name}: {device.description}" in said
    assert said.count("(the default)") == 1
    for name, why in mo.devices().missing.items():
        assert f"{name}: not here: {why}" in said
    assert f"threads of the CPU device: {mo.get_num_threads()}" in said
    assert "MLXOPS_TUNING=\n" in said


def test_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLXOPS_TUNING", __file__)
    assert run("info", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["mlxops"] == mo.__version__
    assert found["devices"] == {device.name: device.description for device in mo.devices()}
    assert found["default_device"] == mo.default_device().name
    assert found["missing_devices"] == mo.devices().missing
    assert found["threads"] == mo.get_num_threads()
    assert found["cache"]["limit"] == mo.cache_info().limit
    assert found["environment"]["MLXOPS_TUNING"] == __file__
    assert found["tuning"]["file"] == __file__
    assert found["tuning"]["state"].startswith("not used: ")
