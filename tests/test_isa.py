"""The instruction sets of the CPU device: how one is chosen, and that all give the same bits."""

import platform
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

import core_program
import fresh_python
import projections
from canonical_reference import CanonicalReference
from mlxops.selftest import CASES

KNOWN = ("scalar", "avx2", "avx512", "neon")

# Those with a kernel in a build for this machine, the best one last.
ARM, X86 = ("scalar", "neon"), ("scalar", "avx2", "avx512")
BUILT = {"aarch64": ARM, "arm64": ARM, "x86_64": X86}.get(platform.machine(), ("scalar",))

# What the kernel calls the features that the instruction sets need.
FEATURES = {
    "avx2": {"avx2", "fma", "f16c"},
    "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"},
}

CHOICE = """
    import warnings

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        import mlxops as mo
    [cpu] = [device for device in mo.devices() if device.name == "cpu"]
    print(cpu.description.rsplit(", ", 1)[1])
    print(*(warning.message for warning in caught))
"""

SELFTEST = """
    import sys
    from mlxops.__main__ import main
    sys.exit(main())
"""

# Fails where a golden case, or a shape with any tail in K and N and any m, differs in a bit.
TAILS_AND_GOLDEN_CASES = """
    import sys
    import tempfile
    from pathlib import Path

    sys.path.insert(0, sys.argv[1])
    import numpy as np

    import mlxops as mo
    from mlxops.testing import assert_bits_equal
    from canonical_reference import CanonicalReference
    from q4_0_data import normal_input, random_blocks

    golden = np.load(Path(sys.argv[1]) / "data" / "canonical_order.npz")
    for case in sorted({key.split("/")[0] for key in golden}):
        blocks, x = golden[f"{case}/blocks"], golden[f"{case}/x"]
        weight = mo.Q4_0Matrix.from_blocks(blocks, (len(blocks), x.shape[-1]))
        expected = golden[f"{case}/bits"].view(np.float32)
        assert_bits_equal(mo.mul_mv_q4_0(weight, x, device="cpu"), expected)
    rng = np.random.default_rng(11)
    with tempfile.TemporaryDirectory() as directory:
        reference = CanonicalReference(Path(directory))
    for n_blocks in range(1, 35):
        for m in range(1, 18):
            N, K = 1 + (5 * n_blocks + 3 * m) % 37, 32 * n_blocks
            blocks, x = random_blocks(rng, N, K), normal_input(rng, m, K)
            x[rng.random(x.shape) < 0.01] = -0.0
            weight = mo.Q4_0Matrix.from_blocks(blocks, (N, K))
            assert_bits_equal(mo.mul_mv_q4_0(weight, x, device="cpu"), reference(blocks, x))
    # More rows of x than are arranged at once.
    blocks, x = random_blocks(rng, 3, 32), normal_input(rng, 70001, 32)
    weight = mo.Q4_0Matrix.from_blocks(blocks, (3, 32))
    assert_bits_equal(mo.mul_mv_q4_0(weight, x, device="cpu"), reference(blocks, x))
    print("done")
"""


def choice(variable: str) -> tuple[str, str]:
    """The instruction set that a process with this MLXOPS_CPU_ISA uses, and what it warns of."""
    isa, warned = fresh_python.run(CHOICE, MLXOPS_CPU_ISA=variable).split("\n", 1)
    return isa, warned.strip()


def available() -> list[str]:
    """The instruction sets that can be had here, as the refusal of an unknown one lists them."""
    found = re.search(r"it can be ([\w, ]+) here", choice("unknown")[1])
    assert found
    return found[1].split(", ")


AVAILABLE = available()

# For tests of every kernel of the build. A report of the tests lists those that could not run.
EACH = [
    pytest.param(
        isa,
        marks=pytest.mark.skipif(
            isa not in AVAILABLE, reason=f"the kernel {isa} was NOT RUN: this processor lacks it"
        ),
    )
    for isa in BUILT
]

linux_on_x86_64 = pytest.mark.skipif(
    platform.system() != "Linux" or platform.machine() != "x86_64",
    reason="the processor's features are those of Linux on x86-64",
)


def test_what_is_available() -> None:
    assert set(AVAILABLE) <= set(BUILT)
    assert {"scalar", "neon"} & set(BUILT) <= set(AVAILABLE)


@linux_on_x86_64
def test_what_the_processor_has_is_available() -> None:
    flags = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    assert flags
    has = set(flags[1].split())
    assert set(AVAILABLE) == {"scalar"} | {isa for isa, needs in FEATURES.items() if needs <= has}


def test_the_best_one_is_the_default() -> None:
    best = max(AVAILABLE, key=BUILT.index)
    assert choice("") == (best, "")


@pytest.mark.parametrize("isa", EACH)
def test_one_is_forced(isa: str) -> None:
    assert choice(isa) == (isa, "")


@pytest.mark.parametrize("isa", [isa for isa in KNOWN if isa not in AVAILABLE])
def test_one_that_the_machine_lacks_is_refused(isa: str) -> None:
    used, warned = choice(isa)
    assert used == choice("")[0]
    assert f"MLXOPS_CPU_ISA is '{isa}'" in warned
    assert "this processor does not have" in warned
    assert ", ".join(AVAILABLE) in warned
    assert f"{used} is used" in warned


@pytest.mark.parametrize("value", ["sse9", "AVX2", "avx2 ", "1"])
def test_a_nonsensical_environment_variable(value: str) -> None:
    used, warned = choice(value)
    assert used == choice("")[0]
    assert f"MLXOPS_CPU_ISA is '{value}'" in warned
    assert "is no instruction set" in warned


@pytest.mark.parametrize("isa", EACH)
def test_the_selftest(isa: str) -> None:
    output = fresh_python.run(SELFTEST, "selftest", "--device", "cpu", MLXOPS_CPU_ISA=isa)
    assert output.count(" us  ok\n") == len(CASES)
    assert output.endswith("all bits are equal\n")


@pytest.mark.parametrize("isa", EACH)
def test_golden_cases_and_every_tail(isa: str) -> None:
    tests = str(Path(__file__).parent)
    output = fresh_python.run(TAILS_AND_GOLDEN_CASES, tests, MLXOPS_CPU_ISA=isa, timeout=120)
    assert output == "done\n"


@pytest.fixture(scope="module")
def qemu() -> str:
    """The emulator of x86-64 processors."""
    return core_program.needed("qemu-x86_64", "qemu-user")


@pytest.fixture(scope="module")
def run_projections(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of that name, for this processor."""
    program = tmp_path_factory.mktemp("isa") / "run_projections"
    flags = ["-O3", "-g0", core_program.FLOAT_ENVIRONMENT]
    core_program.build("run_projections", program, flags)
    return program


@linux_on_x86_64
@pytest.mark.parametrize(("cpu", "isa"), [("Haswell", "avx2"), ("Nehalem", "scalar")])
def test_an_older_processor(
    cpu: str,
    isa: str,
    qemu: str,
    run_projections: Path,
    rng: np.random.Generator,
    reference: CanonicalReference,
) -> None:
    """Under qemu, which has no processor with AVX-512."""
    version = subprocess.run([qemu, "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"version (\d+)\.(\d+)", version.stdout)
    assert found
    if isa == "avx2" and (int(found[1]), int(found[2])) < (7, 2):
        pytest.skip(f"qemu {found[1]}.{found[2]} has no AVX2; 7.2 has it")
    cases = projections.golden() + projections.tails(rng, reference, every=29)
    cases += projections.special_values(rng, reference)
    told = projections.run([qemu, "-cpu", cpu, run_projections], cases)
    assert told.device.endswith(f", {isa}")
    assert told.complaints == ""
