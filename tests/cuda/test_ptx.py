"""The PTX of the CUDA device is that of the shaders beside it, and keeps the canonical order."""

from __future__ import annotations

import os
import platform
import re
from importlib import metadata
from pathlib import Path

import pytest

import make_ptx
from msl_to_cuda import translate_shader

NEWER_PACKAGE = "nvidia-cuda-nvrtc"
REQUIREMENTS = Path(__file__).with_name("nvrtc.txt")
CAN_BE_HAD = (platform.system(), platform.machine()) == ("Linux", "x86_64")

each_shader = pytest.mark.parametrize("shader", make_ptx.shaders(), ids=lambda path: path.stem)

# The arithmetic of the canonical order: one rounding to nearest even each, subnormals kept. (A
# subtraction of what is exact.)
EXACT_OR_IN_ORDER = {"fma.rn.f32", "add.rn.f32", "sub.rn.f32", "cvt.f32.f16"}
INTEGER_TO_FLOAT = re.compile(r"cvt\.rn\.f32\.[us](8|16|32)")
MOVES = re.compile(r"(mov|selp|ld\.global\.nc|ld\.shared|st\.global|st\.shared)(\.v[24])?\.f32")


def find_nvrtc(package: str) -> make_ptx.Nvrtc:
    """The NVRTC of a package, of the release in nvrtc.txt."""
    release = re.search(rf"^{package}==(.+)$", REQUIREMENTS.read_text(), re.MULTILINE)
    assert release is not None
    try:
        installed = metadata.version(package)
    except metadata.PackageNotFoundError:
        installed = "none"
    if installed == release[1]:
        return make_ptx.Nvrtc(package)
    message = f"{package} {release[1]} is not installed: pip install -r {REQUIREMENTS}"
    if os.environ.get("CI") and CAN_BE_HAD:
        pytest.fail(message)
    pytest.skip(message)


def ptx_of(shader: Path) -> str:
    """The committed PTX."""
    return (make_ptx.PTX / f"{shader.stem}.ptx").read_text()


def instructions(ptx: str) -> set[str]:
    """The names of all instructions in the functions of a PTX text."""
    found = re.findall(r"^[\s{]*(?:@!?%p\d+\s+)?([a-z][\w.]*)\s[^;]*;", ptx, re.MULTILINE)
    assert {"ld.param.u64", "ret"} <= {*found, *re.findall(r"^\s*(ret);", ptx, re.MULTILINE)}
    return set(found)


@each_shader
def test_made_from_this_shader(shader: Path) -> None:
    assert ptx_of(shader).startswith(make_ptx.heading(shader)), "run tools/make_ptx.py"


def test_one_file_for_each_shader() -> None:
    assert {path.stem for path in make_ptx.PTX.iterdir()} == {s.stem for s in make_ptx.shaders()}


@each_shader
def test_entries_are_the_host_names(shader: Path) -> None:
    host_names = re.findall(r'host_name\(\s*"(\w+)"', shader.read_text())
    entries = re.findall(r"^\.visible \.entry (\w+)\(", ptx_of(shader), re.MULTILINE)
    assert host_names
    assert sorted(entries) == sorted(host_names)


@each_shader
def test_runs_on_old_drivers_and_gpus(shader: Path) -> None:
    ptx = ptx_of(shader)
    assert re.findall(r"^\.version (.*)$", ptx, re.MULTILINE) == ["7.8"]
    assert re.findall(r"^\.target (.*)$", ptx, re.MULTILINE) == ["sm_75"]


@each_shader
def test_arithmetic_is_that_of_the_canonical_order(shader: Path) -> None:
    """Nothing is contracted, approximate, flushed to zero or of another precision."""
    floating = {name for name in instructions(ptx_of(shader)) if re.search(r"\.(b?f|tf)\d", name)}
    others = {
        name
        for name in floating - EXACT_OR_IN_ORDER
        if not INTEGER_TO_FLOAT.fullmatch(name) and not MOVES.fullmatch(name)
    }
    assert not others
    assert ("fma.rn.f32" in floating) == (shader.stem != "qkv_split")


@each_shader
def test_no_memory_of_its_own(shader: Path) -> None:
    """No stack, no spilled registers, no constants beside the parameters."""
    assert not re.search(r"\.local|\.const|\.global \.align", ptx_of(shader))


@each_shader
def test_made_anew_it_is_the_same(shader: Path) -> None:
    nvrtc = find_nvrtc(make_ptx.PACKAGE)
    assert make_ptx.make(shader, nvrtc) == ptx_of(shader)


@each_shader
def test_compiles_for_every_gpu(shader: Path) -> None:
    nvrtc = find_nvrtc(NEWER_PACKAGE)
    architectures = [a for a in nvrtc.architectures() if a >= 75]
    assert {75, 80, 86, 89, 90, 100, 120} <= set(architectures)
    source = translate_shader(shader)
    for architecture in architectures:
        nvrtc.compile(source, f"compute_{architecture}")


def test_an_error_names_the_line_of_the_shader() -> None:
    nvrtc = find_nvrtc(make_ptx.PACKAGE)
    source = translate_shader(make_ptx.SHADERS / "qkv_split.metal")
    wrong = source.replace("const T value = qkv[", "const T value = missing[")
    with pytest.raises(make_ptx.CompilationError, match=r"qkv_split\.metal\(21\): error:.*missing"):
        nvrtc.compile(wrong)


def test_a_warning_is_an_error() -> None:
    nvrtc = find_nvrtc(make_ptx.PACKAGE)
    with pytest.raises(make_ptx.CompilationError, match="declared but never referenced"):
        nvrtc.compile('extern "C" __global__ void f() { int unused; }\n')
