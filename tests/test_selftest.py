"""The self-test: its stored digests are those of the canonical order, and it sees what is wrong."""

import re

import numpy as np
import pytest

import fresh_python
import mlxops as mo
from canonical_reference import CanonicalReference
from mlxops import selftest
from mlxops.selftest import CASES, Case, Results


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_the_digests_are_those_of_the_reference(case: Case, reference: CanonicalReference) -> None:
    if case.kernel == "qkv_split":
        seq, *spans = case.shape
        parts = np.split(selftest.activations(seq, sum(spans)), np.cumsum(spans)[:2], axis=1)
        results: Results = tuple(np.ascontiguousarray(part) for part in parts)
    else:
        n, k, m = case.shape
        seeds = (1,) if case.kernel == "mul_mv_q4_0" else (1, 2)
        x = selftest.activations(m, k)
        results = tuple(reference(selftest.weight(n, k, seed).blocks, x) for seed in seeds)
    assert selftest.digest(results) == case.digest


def test_every_kernel_is_among_the_cases() -> None:
    sizes = {case.shape[2] for case in CASES if case.kernel == "fused_dual_proj_q4_0"}
    assert {1, 2, 3, 4, 8, 100} <= sizes
    splits = [case.shape[1:] for case in CASES if case.kernel == "qkv_split"]
    assert any(all(span % 4 == 0 for span in spans) for spans in splits)
    assert any(any(span % 4 != 0 for span in spans) for spans in splits)


def test_the_command(device: str) -> None:
    code = "import sys; from mlxops.__main__ import main; sys.exit(main())"
    output = fresh_python.run(code, "selftest", "--device", device)
    lines = [line for line in output.splitlines() if re.match(rf"{device} +\w+ ", line)]
    assert len(lines) == len(CASES)
    assert all(line.endswith(" us  ok") for line in lines)
    assert output.endswith("all bits are equal\n")
    assert mo.__version__ in output


def test_a_mismatch_is_explained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first call errs by one bit, as a device might whose other calls are those of the CPU."""
    case = next(case for case in CASES if case.label == "mul_mv_q4_0 N=33 K=544 m=3")
    right = case.operation("cpu")[0].view(np.uint32)[0, 5]
    calls: list[Results] = []

    def operation(device: str) -> Results:
        results = (mo.mul_mv_q4_0(weight, x, device=device),)
        if not calls:
            results[0].view(np.uint32)[0, 5] ^= 1
        calls.append(results)
        return results

    weight, x = selftest.weight(33, 544, 1), selftest.activations(3, 544)
    monkeypatch.setattr(selftest, "CASES", [case])
    monkeypatch.setattr(selftest, "project", lambda _: operation)
    assert selftest.run("cpu") == 1
    captured = capsys.readouterr()
    assert "WRONG" in captured.out
    for text in (case.label, "element (0, 5)", f"0x{right ^ 1:08x}", f"0x{right:08x}"):
        assert text in captured.err


def test_a_wrong_digest_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(selftest, "CASES", [Case("mul_mv_q4_0", (33, 544, 3), "0123456789abcdef")])
    assert selftest.run("cpu") == 1
    captured = capsys.readouterr()
    assert "WRONG" in captured.out
    assert "mul_mv_q4_0 N=33 K=544 m=3" in captured.err
    assert "0123456789abcdef" in captured.err


def test_an_unknown_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert selftest.run("abacus") == 1
    assert "abacus" in capsys.readouterr().err


def test_a_device_that_fails_does_not_end_the_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(device: str) -> Results:
        raise mo.DeviceError("could not compile")

    right = selftest.project
    cases = [case for case in CASES if case.kernel == "mul_mv_q4_0"][:2]
    monkeypatch.setattr(selftest, "CASES", cases)
    monkeypatch.setattr(selftest, "project", lambda case: fail if case is cases[0] else right(case))
    assert selftest.run("cpu") == 1
    captured = capsys.readouterr()
    assert f"{cases[0].label}: DeviceError: could not compile" in captured.err
    assert cases[1].label in captured.out
    assert "1 cases are wrong" in captured.out
