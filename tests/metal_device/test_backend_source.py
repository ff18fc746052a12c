"""The backend's source as Apple's compiler would see it."""

from __future__ import annotations

from pathlib import Path

import metal_sim

REPOSITORY = Path(__file__).parents[2]
BACKEND = REPOSITORY / "csrc" / "metal" / "metal_device.m"


def test_no_api_newer_than_the_deployment_target_without_a_guard() -> None:
    flags = [f"-I{REPOSITORY / 'csrc'}"]
    assert metal_sim.check_deployment_target(BACKEND, "13.0", flags) == ""


def test_an_sdk_that_does_not_know_macos_15() -> None:
    flags = [f"-I{REPOSITORY / 'csrc'}", "-D__MAC_OS_X_VERSION_MAX_ALLOWED=140000"]
    flags.append("-DMTLMathModeSafe=not_in_this_sdk")
    assert metal_sim.check_deployment_target(BACKEND, "13.0", flags) == ""


def test_the_check_would_see_it(tmp_path: Path) -> None:
    text = BACKEND.read_text()
    guard = "if (@available(macOS 15.0, *))"
    assert guard in text
    unguarded = tmp_path / "unguarded.m"
    unguarded.write_text(text.replace(guard, "if (1)"))
    said = metal_sim.check_deployment_target(unguarded, "13.0", [f"-I{REPOSITORY / 'csrc'}"])
    assert "only available on macOS 15" in said
