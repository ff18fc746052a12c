"""Each check of the Metal simulator rejects the small program in bad/ that breaks its rule, and the
programs in good/ pass in both orders of threads and threadgroups.

A program starts with directives, // name: value. "expect" is a regular expression for what must be
reported; {file} is the program's name there, {here} the line that ends in "// here". Others say how
a shader is dispatched, see Program.job().
"""

from __future__ import annotations

import ctypes
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import metal_sim
from metal_sim.harness import Array, Harness, Job, compile_library

HERE = Path(__file__).parent
THREADS = 64


@dataclass(frozen=True)
class Program:
    path: Path
    directives: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> Program:
        found = re.findall(r"^// ([a-z-]+): (.*)$", path.read_text(), re.MULTILINE)
        return cls(path, dict(found))

    @property
    def expect(self) -> str:
        lines = self.path.read_text().splitlines()
        here = "|".join(str(i) for i, line in enumerate(lines, 1) if line.endswith("// here"))
        expect = self.directives["expect"].replace("{file}", re.escape(self.path.name))
        return expect.replace("{here}", f"({here})")

    def number(self, name: str, default: int) -> int:
        return int(self.directives.get(name, default))

    def pairs(self, name: str) -> dict[int, str]:
        pairs = (pair.split("=") for pair in self.directives.get(name, "").split())
        return {int(index): value for index, value in pairs}

    def job(self) -> Job:
        """Buffer 0 holds ones, 1 zeros (both float[64]), 2 is set by setBytes: each where the
        shader has an argument at that index."""
        source = self.path.read_text()
        y = np.zeros(THREADS, np.float32)
        number = np.array(THREADS, np.uint32).tobytes()
        parameters = number.ljust(self.number("bytes", 4), b"\0")[: self.number("bytes", 4)]
        all_arguments: dict[int, Array | bytes] = {0: np.ones_like(y), 1: y, 2: parameters}
        arguments = {i: a for i, a in all_arguments.items() if f"[[buffer({i})]]" in source}
        if "omit" in self.directives:
            del arguments[self.number("omit", 0)]
        if "extra" in self.directives:
            arguments[self.number("extra", 0)] = y
        return Job(
            f'#line 1 "{self.path.name}"\n{source}',
            self.directives.get("kernel", "f"),
            (self.number("threads", THREADS), 1, 1),
            (self.number("group", THREADS), 1, 1),
            arguments,
            {i: int(length) for i, length in self.pairs("threadgroup-memory").items()},
            {i: float(v) if "." in v else int(v) for i, v in self.pairs("constants").items()},
        )


def programs(folder: str, suffix: str) -> list[Program]:
    return [Program.read(path) for path in sorted((HERE / folder).glob(f"*{suffix}"))]


def name_of(program: Program) -> str:
    return program.path.stem


# ---- shaders ----


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("program", programs("bad", ".metal"), ids=name_of)
def test_bad_shader_is_rejected(
    program: Program, reverse: bool, harness: Harness, control: metal_sim.Control
) -> None:
    control.set_reverse(reverse)
    control.set_watchdog(program.number("watchdog", 20000))
    control.set_max_total_threads_per_threadgroup(program.number("max-threads", 1024))
    control.start_counting_objects()
    said = harness.run(program.job()) + "\n" + control.reports()
    assert re.search(program.expect, said), said
    assert control.live_objects_text() == ""


def expected_result(program: Program) -> Array:
    if "result-bits" in program.directives:
        words = [int(word) for word in program.directives["result-bits"].split()]
        return np.array(words, np.uint32)
    return np.full(THREADS, float(program.directives["result"]), np.float32).view(np.uint32)


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("program", programs("good", ".metal"), ids=name_of)
def test_good_shader_passes(
    program: Program, reverse: bool, harness: Harness, control: metal_sim.Control
) -> None:
    control.set_reverse(reverse)
    job = program.job()
    assert harness.run(job) == ""
    assert control.reports() == ""
    assert control.dispatches() == 1
    assert control.memory_accesses() > 0
    y, expected = job.arguments[1], expected_result(program)
    assert isinstance(y, np.ndarray)
    assert np.array_equal(y.view(np.uint32)[: len(expected)], expected)


# ---- the host's side ----

BAD_PROGRAMS = [p for p in programs("bad", ".m") if "expect" in p.directives]
GOOD_PROGRAMS = programs("good", ".m")
TARGET_PROGRAMS = [p for p in programs("bad", ".m") if "deployment-target" in p.directives]


def compile_programs(
    simulator: metal_sim.MetalSim, programs: list[Program], result: str, directory: Path
) -> ctypes.CDLL:
    """All programs in one library; run() of each goes by the program's name there."""
    sources = []
    for program in programs:
        renamed = directory / program.path.name
        exported = '__attribute__((visibility("default")))'
        renamed.write_text(
            f"{exported} {result}run_{program.path.stem}(void);\n"
            f"#define run run_{program.path.stem}\n"
            f'#include "{program.path}"\n'
        )
        sources.append(renamed)
    return compile_library(simulator, sources, directory / "programs.so")


@pytest.fixture(scope="session")
def bad_programs(
    simulator: metal_sim.MetalSim, tmp_path_factory: pytest.TempPathFactory
) -> ctypes.CDLL:
    return compile_programs(simulator, BAD_PROGRAMS, "void ", tmp_path_factory.mktemp("bad"))


@pytest.fixture(scope="session")
def good_programs(
    simulator: metal_sim.MetalSim, tmp_path_factory: pytest.TempPathFactory
) -> ctypes.CDLL:
    directory = tmp_path_factory.mktemp("good")
    return compile_programs(simulator, GOOD_PROGRAMS, "const char *", directory)


@pytest.mark.parametrize("program", BAD_PROGRAMS, ids=name_of)
def test_bad_host_program_is_rejected(
    program: Program, bad_programs: ctypes.CDLL, control: metal_sim.Control
) -> None:
    control.start_counting_objects()
    bad_programs[f"run_{program.path.stem}"]()
    said = control.reports()
    if control.in_flight():
        said += f"in flight: {control.in_flight()}\n"
    if control.live_objects():
        said += f"live: {control.live_objects_text()}\n"
    assert re.search(program.expect, said, re.MULTILINE), said


@pytest.mark.parametrize("program", GOOD_PROGRAMS, ids=name_of)
def test_good_host_program_passes(
    program: Program, good_programs: ctypes.CDLL, control: metal_sim.Control
) -> None:
    control.start_counting_objects()
    function = good_programs[f"run_{program.path.stem}"]
    function.restype = ctypes.c_char_p
    assert function() is None
    assert control.reports() == ""
    assert control.live_objects_text() == ""


@pytest.mark.parametrize("program", TARGET_PROGRAMS, ids=name_of)
def test_api_newer_than_the_deployment_target(program: Program) -> None:
    said = metal_sim.check_deployment_target(program.path, "13.0")
    assert program.directives["deployment-target"] in said
    assert metal_sim.check_deployment_target(program.path, "15.0") == ""


# ---- what a test can ask for ----

XY = """#include <metal_stdlib>
using namespace metal;
PRAGMA
kernel void f(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
              uint i [[thread_position_in_grid]])
{
    y[i] = EXPRESSION;
}
"""


def simple_job(expression: str, x: Array, pragma: str = "", fast_math: bool = False) -> Job:
    """y[i] = expression, of x[i]; the result is argument 1."""
    source = XY.replace("EXPRESSION", expression).replace("PRAGMA", pragma)
    y = np.zeros(len(x), np.float32)
    size = (len(x), 1, 1)
    return Job(source, "f", size, (min(len(x), 64), 1, 1), {0: x, 1: y}, fast_math=fast_math)


def run_simple(harness: Harness, job: Job) -> Array:
    assert harness.run(job) == ""
    y = job.arguments[1]
    assert isinstance(y, np.ndarray)
    return y


@pytest.mark.parametrize("silent", [False, True], ids=["error", "silent"])
def test_every_call_can_fail(harness: Harness, control: metal_sim.Control, silent: bool) -> None:
    job = simple_job("x[i]", np.ones(64, np.float32))
    control.start_counting_objects()
    assert harness.run(job) == ""
    calls, failed = control.call_count(), []
    for n in range(1, calls + 1):
        control.fail_call(n, silent)
        said = harness.run(job)
        failed.append(control.failed_call())
        reached = {"newBufferWithLength:options:", "commandBuffer", "computeCommandEncoder"}
        if failed[-1] not in reached | {"newCommandQueue", "MTLCreateSystemDefaultDevice"}:
            injected = "injected fault in " in said
            assert said
            assert injected != silent
        control.fail_call(0)
        control.reset()
        assert harness.run(job) == ""
        assert control.live_objects_text() == ""
    assert failed == [
        "MTLCreateSystemDefaultDevice",
        "newLibraryWithSource:options:error:",
        "newFunctionWithName:constantValues:error:",
        "newComputePipelineStateWithFunction:error:",
        "newCommandQueue",
        "commandBuffer",
        "computeCommandEncoder",
        "newBufferWithLength:options:",
        "newBufferWithLength:options:",
        "commit",
    ]


def test_contraction_is_on_unless_the_source_says_off(harness: Harness) -> None:
    x = np.full(1, 1 + 2.0**-12, np.float32)
    expression = "x[i] * x[i] - (1 + 2 * 0.000244140625f)"
    exact = np.float32(2.0**-24)
    assert run_simple(harness, simple_job(expression, x))[0] == exact
    off = "#pragma METAL fp contract(off)"
    assert run_simple(harness, simple_job(expression, x, off))[0] == 0
    assert run_simple(harness, simple_job(expression, x, off, fast_math=True))[0] == 0


def test_fast_math_is_seen(harness: Harness, control: metal_sim.Control) -> None:
    subnormal = np.full(1, 2.0**-140, np.float32)
    not_a_number = np.full(1, np.nan, np.float32)
    sum_and_back = "(x[i] + 16777216.0f) - 16777216.0f"
    for fast in (False, True):
        control.reset()
        kept = run_simple(harness, simple_job("x[i] * 2", subnormal, fast_math=fast))
        nan = run_simple(harness, simple_job("isnan(x[i]) ? 1 : 0", not_a_number, fast_math=fast))
        ones = np.ones(1, np.float32) / 4
        back = run_simple(harness, simple_job(sum_and_back, ones, fast_math=fast))
        assert (kept[0] != 0, nan[0] == 1, back[0] == 0) == (not fast,) * 3
        assert control.fast_math_libraries() == (3 if fast else 0)


def test_shaders_are_compiled_once(
    harness: Harness, control: metal_sim.Control, tmp_path: Path
) -> None:
    job = simple_job("x[i] + 1", np.ones(4, np.float32))
    control.set_shader_cache(tmp_path / "new")
    for compilations in (1, 1):
        assert run_simple(harness, job)[3] == 2
        assert control.compilations() == compilations
    other_options = simple_job("x[i] + 1", np.ones(4, np.float32), fast_math=True)
    assert run_simple(harness, other_options)[3] == 2
    assert control.compilations() == 2
    assert {path.name for path in (tmp_path / "new").glob("*/*.so")} == {"shader.so"}
    assert not list((tmp_path / "new").glob("work*"))


def test_a_failed_compilation_leaves_nothing_behind(
    harness: Harness, control: metal_sim.Control, tmp_path: Path
) -> None:
    control.set_shader_cache(tmp_path)
    assert "undeclared identifier" in harness.run(simple_job("z", np.ones(4, np.float32)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_sampled_threadgroups(harness: Harness, control: metal_sim.Control, reverse: bool) -> None:
    control.set_sampled_threadgroups(5)
    control.set_reverse(reverse)
    y = run_simple(harness, simple_job("x[i]", np.ones(64 * 101, np.float32)))
    assert control.threadgroups() == 5
    assert list(np.flatnonzero(y.reshape(101, 64).all(axis=1))) == [0, 25, 50, 75, 100]
    assert y.sum() == 5 * 64


def test_forbidden_zone(
    simulator: metal_sim.MetalSim, control: metal_sim.Control, tmp_path: Path
) -> None:
    library = compile_library(simulator, [HERE / "over_memory.m"], tmp_path / "over_memory.so")
    pages = np.zeros(3 * 16384, np.uint8)
    start = -pages.ctypes.data % 16384
    wrapped = pages[start : start + 16384]
    run = library.run_over_memory
    run.restype = ctypes.c_char_p
    address = ctypes.c_void_p(wrapped.ctypes.data)
    assert run(address) is None
    control.forbid(wrapped.ctypes.data + 256, 16384 - 256)
    assert run(address) is None
    control.forbid(wrapped.ctypes.data + 100, 4)
    said = run(address).decode()
    assert "read of 4 bytes out of bounds" in said
    assert said in control.reports()


def test_several_threads(harness: Harness, control: metal_sim.Control) -> None:
    control.start_counting_objects()

    def work(seed: int) -> bool:
        x = np.random.default_rng(seed).normal(0, 1, 1000).astype(np.float32)
        return np.array_equal(run_simple(harness, simple_job("x[i] + x[i]", x)), x + x)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(40)))
    assert control.reports() == ""
    assert control.live_objects_text() == ""
    assert control.dispatches() == 40
