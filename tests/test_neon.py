"""The NEON kernel on an x86-64 machine: the C core built for aarch64, under qemu's user mode."""

import platform
import subprocess
from pathlib import Path

import numpy as np
import pytest

import core_program
import projections
from canonical_reference import CanonicalReference

pytestmark = pytest.mark.skipif(
    platform.system() != "Linux" or platform.machine() != "x86_64",
    reason="emulates aarch64 on Linux x86-64; on aarch64 the whole suite runs the NEON kernel",
)

CROSS_COMPILER = "gcc-aarch64-linux-gnu"  # the package; clang uses its libraries
COMPILERS = {
    "gcc": ["aarch64-linux-gnu-gcc"],
    "clang": ["clang", "--target=aarch64-linux-gnu"],
}
FLAGS = ["-static", "-O3", "-g0", "-Wall", "-Wextra", "-Werror", "-DEMULATED"]

Command = list[str | Path]


def emulated(name: str, folder: Path, compiler: str, *sources: str) -> Command:
    """The command that runs a program of tests/c as aarch64."""
    qemu = core_program.needed("qemu-aarch64", "qemu-user")
    core_program.needed("aarch64-linux-gnu-gcc", CROSS_COMPILER)
    core_program.needed(COMPILERS[compiler][0], compiler)
    target = folder / name
    core_program.build(name, target, [*FLAGS, *sources], COMPILERS[compiler])
    return [qemu, target]


@pytest.fixture(scope="module", params=COMPILERS)
def command(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Command:
    """What runs projections, built by each of the compilers."""
    folder = tmp_path_factory.mktemp(f"aarch64_{request.param}")
    return emulated("run_projections", folder, request.param, core_program.FLOAT_ENVIRONMENT)


def test_neon_is_the_best_one(command: Command) -> None:
    told = projections.run(command, [])
    assert told.device.endswith(", neon")
    assert told.complaints == ""


@pytest.mark.parametrize("isa", ["neon", "scalar"])
def test_golden_cases(command: Command, isa: str) -> None:
    told = projections.run(command, projections.golden(), MLXOPS_CPU_ISA=isa)
    assert told.device.endswith(f", {isa}")
    assert told.complaints == ""


def test_every_tail(
    command: Command, rng: np.random.Generator, reference: CanonicalReference
) -> None:
    told = projections.run(command, projections.tails(rng, reference))
    assert told.device.endswith(", neon")


def test_tails_in_plain_c(
    command: Command, rng: np.random.Generator, reference: CanonicalReference
) -> None:
    some = projections.tails(rng, reference, every=7)
    told = projections.run(command, some, MLXOPS_CPU_ISA="scalar")
    assert told.device.endswith(", scalar")


@pytest.mark.parametrize("isa", ["neon", "scalar"])
def test_special_values(
    command: Command, isa: str, rng: np.random.Generator, reference: CanonicalReference
) -> None:
    special = projections.special_values(rng, reference)
    told = projections.run(command, special, MLXOPS_CPU_ISA=isa)
    assert told.device.endswith(f", {isa}")


def test_several_threads(
    command: Command, rng: np.random.Generator, reference: CanonicalReference
) -> None:
    told = projections.run(command, projections.shared(rng, reference))
    assert told.device.endswith(", neon")


@pytest.mark.parametrize("isa", ["avx2", "avx512"])
def test_another_processors_instruction_set_is_refused(command: Command, isa: str) -> None:
    told = projections.run(command, projections.golden(), MLXOPS_CPU_ISA=isa)
    assert told.device.endswith(", neon")
    assert told.complaints == (
        f"MLXOPS_CPU_ISA is '{isa}', which this processor does not have; it can be scalar, neon "
        "here, and neon is used"
    )


@pytest.mark.parametrize("compiler", COMPILERS)
def test_the_core(compiler: str, tmp_path: Path) -> None:
    command = emulated("test_core", tmp_path, compiler)
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout == "0 failures\n"
