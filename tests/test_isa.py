"""The instruction sets of the CPU device: how one is chosen, and that all give the same bits."""

import platform
import re
from pathlib import Path

import pytest

import fresh_python
from mlxops.selftest import CASES

KNOWN = ("scalar", "avx2", "avx512", "neon")

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
    from bits import assert_bits_equal
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


def test_what_is_available() -> None:
    assert "scalar" in AVAILABLE
    assert set(AVAILABLE) <= set(KNOWN)


@pytest.mark.skipif(
    platform.system() != "Linux" or platform.machine() != "x86_64",
    reason="the names of the features are those of Linux on x86-64",
)
def test_what_the_processor_has_is_available() -> None:
    flags = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    assert flags
    has = set(flags[1].split())
    assert set(AVAILABLE) == {"scalar"} | {isa for isa, needs in FEATURES.items() if needs <= has}


def test_the_best_one_is_the_default() -> None:
    best = max(AVAILABLE, key=KNOWN.index)
    assert choice("") == (best, "")


@pytest.mark.parametrize("isa", AVAILABLE)
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


@pytest.mark.parametrize("isa", AVAILABLE)
def test_the_selftest(isa: str) -> None:
    output = fresh_python.run(SELFTEST, "selftest", "--device", "cpu", MLXOPS_CPU_ISA=isa)
    assert output.count(" us  ok\n") == len(CASES)
    assert output.endswith("all bits are equal\n")


@pytest.mark.parametrize("isa", AVAILABLE)
def test_golden_cases_and_every_tail(isa: str) -> None:
    tests = str(Path(__file__).parent)
    output = fresh_python.run(TAILS_AND_GOLDEN_CASES, tests, MLXOPS_CPU_ISA=isa, timeout=120)
    assert output == "done\n"
