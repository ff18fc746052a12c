"""The benchmark: its numbers follow from what it timed, and what it says of itself is so."""

import importlib.util
import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fresh_python
import mlxops as mo
from mlxops import __main__ as command_line
from mlxops import _core
from mlxops.bench import machine, measuring, peers, projections, report, splits
from mlxops.bench.measurement import Measurement
from mlxops.bench.weights import Weights
from mlxops.testing import assert_bits_equal, error_bound

TINY = ["bench", "--quick", "--shape", "64,64", "--m", "1,3"]

KEYS_OF_SHAPES = {
    "fused_dual_proj_q4_0": ["N", "K", "m"],
    "qkv_split": ["seq", "q_sp", "k_sp", "v_sp"],
}
OTHER_KEYS = [
    *("operation", "memory", "name", "description", "seconds", "samples", "copies", "bytes"),
    *("macs", "gb_per_s", "gmac_per_s", "read_gb_per_s", "share_of_read_bandwidth", "error_rms"),
]


def bench(*arguments: str, **environment: str) -> str:
    """What the command prints; it must succeed."""
    process = subprocess.run(
        [sys.executable, "-m", "mlxops", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (process.returncode, process.stderr) == (0, "")
    return process.stdout


def in_this_process(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The exit status of the command line."""
    monkeypatch.setattr(sys, "argv", ["mlxops", *arguments])
    try:
        return command_line.main()
    except SystemExit as error:
        return int(error.code or 0)


# ---- The command --------------------------------------------------------------------------------


def test_json(device: str) -> None:
    output = bench(*TINY, "--split", "5,8,8,32", "--threads", "2", "--device", device, "--json")
    printed = json.loads(output)
    here = printed["machine"]
    assert here["device"] == device
    assert here["threads"] == 2
    assert here["instruction_set"] in ("scalar", "avx2", "avx512", "neon")
    assert here["versions"] == {
        "mlxops": mo.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    assert printed["missing_peers"] == {}
    measurements = printed["measurements"]
    assert [(each["operation"], each.get("m"), each["memory"]) for each in measurements] == [
        ("fused_dual_proj_q4_0", 1, "cold"),
        ("fused_dual_proj_q4_0", 1, "hot"),
        ("fused_dual_proj_q4_0", 3, "cold"),
        ("fused_dual_proj_q4_0", 3, "hot"),
        ("qkv_split", None, "cold"),
        ("qkv_split", None, "hot"),
    ]
    for each in measurements:
        check_consistency(each, here["last_level_cache_bytes"])


def check_consistency(each: dict[str, Any], cache_bytes: int) -> None:
    """One measurement: all derived numbers follow from the time and the shape."""
    keys = KEYS_OF_SHAPES[each["operation"]]
    assert sorted(each) == sorted(keys + OTHER_KEYS)
    if each["operation"] == "qkv_split":
        n_bytes = 2 * 4 * each["seq"] * (each["q_sp"] + each["k_sp"] + each["v_sp"])
        n_macs = 0
        assert each["error_rms"] is None
    else:
        n_bytes = 2 * each["N"] * each["K"] // 32 * 18
        n_macs = 2 * each["N"] * each["K"] * each["m"]
        assert 0 < each["error_rms"] < 1e-6
    assert each["name"] == "mlxops"
    assert (each["bytes"], each["macs"]) == (n_bytes, n_macs)
    assert each["seconds"] > 0
    assert each["samples"] >= 1
    assert each["gb_per_s"] == pytest.approx(n_bytes / each["seconds"] / 1e9)
    assert each["gmac_per_s"] == pytest.approx(n_macs / each["seconds"] / 1e9)
    share = each["gb_per_s"] / each["read_gb_per_s"]
    assert each["share_of_read_bandwidth"] == pytest.approx(share)
    if each["memory"] == "hot":
        assert each["copies"] == 1
    else:
        read = n_bytes // 2 if each["operation"] == "qkv_split" else n_bytes
        assert each["copies"] * read > 4 * cache_bytes


def test_the_tables() -> None:
    output = bench(*TINY, "--split", "5,8,8,32", "--device", "cpu")
    paragraphs = output.split("\n\n")
    assert len(paragraphs) == 3
    assert mo.__version__ in paragraphs[0]
    assert {each.description for each in mo.devices() if each.name == "cpu"} <= {
        paragraphs[0].splitlines()[0].removeprefix("cpu: ")
    }
    title, columns, *lines = paragraphs[1].splitlines()
    assert title == "fused_dual_proj_q4_0, N = 64, K = 64: 0.00461 MB"
    assert columns.split() == ["m", "weights", "time", "GB/s", "GMAC/s", "of", "read"]
    assert [line.split()[:2] for line in lines[:4]] == [
        ["1", "cold"],
        ["1", "hot"],
        ["3", "cold"],
        ["3", "hot"],
    ]
    assert all(line.endswith("%") for line in lines[:4])
    assert lines[4].startswith("  mlxops: error RMS ")
    assert "8 | 8 | 32" in paragraphs[2]


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="this system has no pseudo-terminals")
@pytest.mark.parametrize(("columns", "has_rule"), [("120", True), ("40", False)])
def test_the_tables_on_a_terminal(columns: str, has_rule: bool) -> None:
    """By rich; as plain lines, which the terminal wraps, where it is too narrow for the table."""
    here, terminal = os.openpty()
    arguments = [sys.executable, "-m", "mlxops", *TINY, "--device", "cpu"]
    process = subprocess.Popen(
        arguments, stdout=terminal, env={**os.environ, "COLUMNS": columns, "TERM": "xterm"}
    )
    os.close(terminal)
    output = b""
    try:
        while chunk := os.read(here, 1 << 16):
            output += chunk
    except OSError:
        pass  # Linux: the other end has closed
    os.close(here)
    assert process.wait(60) == 0
    assert ("───" in output.decode()) == has_rule
    assert "hot" in output.decode()


def test_the_picture(tmp_path: Path) -> None:
    image = pytest.importorskip("matplotlib.image")
    path = tmp_path / "bench.png"
    bench(*TINY, "--shape", "64,96", "--device", "cpu", "--plot", str(path))
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    pixels = image.imread(path)
    assert min(pixels.shape[:2]) > 200
    assert len(np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0)) > 10


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--shape", "64"], "'64' is not N,K"),
        (["--shape", "64,64,64"], "'64,64,64' is not N,K"),
        (["--shape", "a,b"], "'a,b' is not N,K"),
        (["--shape", "0,64"], "'0,64' is not N,K"),
        (["--shape", "64,63"], "K = 63 is not a multiple of 32"),
        (["--shape", "2147483648,64"], "2147483648 is above 2^31 - 1"),
        (["--m", "0"], "'0' is not M,..."),
        (["--m", "1,"], "'1,' is not M,..."),
        (["--m", ""], "'' is not M,..."),
        (["--split", "4,8,8"], "'4,8,8' is not SEQ,Q,K,V"),
        (["--threads", "0"], "'0' is not N"),
        (["--device", "abacus"], "no device 'abacus' here; there is "),
        (["--ggml", "missing"], "there is no folder missing"),
        (["--plot", "missing/bench.png"], "missing/bench.png is no file that can be written"),
        (["--plot", "."], ". is no file that can be written"),
        (["--plot", "x.png", "--split", "1,1,1,1"], "--plot draws projections: give a --shape"),
        (["--fast"], "unrecognized arguments: --fast"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_arguments(
    arguments: list[str],
    complaint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    assert in_this_process(monkeypatch, "bench", *arguments) == 2
    captured = capsys.readouterr()
    assert complaint in captured.err
    assert captured.out == ""
    assert list(tmp_path.iterdir()) == []


def test_more_weights_than_memory(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--quick", "--shape", "2147483647,2147483616", "--m", "1"]
    assert in_this_process(monkeypatch, "bench", *arguments) == 1
    assert "not enough memory: " in capsys.readouterr().err


def test_with_numpy_alone() -> None:
    """What is missing is named, with the line that installs it."""
    output = fresh_python.run(
        """
        import sys

        for name in ("rich", "matplotlib", "threadpoolctl", "libggml", "torch", "mlx"):
            sys.modules[name] = None
        from mlxops.__main__ import main
        sys.exit(main())
        """,
        *(*TINY, "--device", "cpu", "--compare"),
    )
    for name, line in peers.INSTALL.items():
        assert (f"not compared: {name} ({line})" in output) == (name != "numpy")
    assert "numpy  ratio" in output
    assert "threadpoolctl" in output


def test_a_picture_without_matplotlib(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    path = tmp_path / "bench.png"
    assert in_this_process(monkeypatch, "bench", "--plot", str(path)) == 2
    assert "pip install matplotlib" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["cpu: ", "fused_dual_proj_q4_0, N = 64, K = 64"])
def test_interrupted(line: str, tmp_path: Path) -> None:
    """At the start, or after the first table: no complaint, and no file."""
    shapes = ["--shape", "64,64", "--shape", "4096,4096", "--plot", str(tmp_path / "bench.png")]
    process = subprocess.Popen(
        [sys.executable, "-m", "mlxops", "bench", "--device", "cpu", "--m", "1", *shapes],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    while not (printed := process.stdout.readline()).startswith(line):
        assert printed, "ended by itself"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [["--json"], []], ids=["json", "tables"])
def test_a_reader_that_has_seen_enough(options: list[str]) -> None:
    """A closed pipe is no reason for a traceback."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mlxops", *TINY, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert process.stderr
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(timeout=60) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk() -> None:
    with open("/dev/full", "w") as full:
        process = subprocess.run(
            [sys.executable, "-m", "mlxops", *TINY, "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert process.returncode == 1
    assert "python -m mlxops: " in process.stderr
    assert "No space left" in process.stderr
    assert "Traceback" not in process.stderr


# ---- What is measured ---------------------------------------------------------------------------


class FakeClock:
    """A clock that only calls of its own making advance."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.made: list[str] = []
        monkeypatch.setattr(measuring, "perf_counter", lambda: self.now)

    def call(self, name: str, seconds: float) -> Callable[[], None]:
        def advance() -> None:
            self.now += seconds
            self.made.append(name)

        return advance


@pytest.mark.parametrize("seconds", [2e-6, 3e-4, 0.03])
def test_a_walk_times_calls_in_turn(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock(monkeypatch)
    walk = measuring.Walk([clock.call(str(i), seconds) for i in range(7)])
    for _ in range(3):
        walk.burst(0.01)
    assert clock.made == [str(i % 7) for i in range(len(clock.made))]
    assert walk.samples == pytest.approx([seconds] * len(walk.samples))
    assert walk.seconds == pytest.approx(seconds)
    warm_up_calls = 3 * max(1, round(measuring.WARM_UP_SECONDS / seconds))
    assert len(clock.made) - warm_up_calls >= len(walk.samples) >= 3


def test_a_long_call_is_made_once_in_a_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock(monkeypatch)
    walk = measuring.Walk([clock.call("long", 2.0)])
    walk.burst(0.01)
    assert (walk.samples, clock.made) == ([2.0], ["long"])


@pytest.mark.parametrize(("seconds", "rounds"), [(0.6, 5), (3.0, 1)])
def test_contestants_take_turns(
    seconds: float, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no new round begins after ten seconds."""
    clock = FakeClock(monkeypatch)

    def contestant(name: str) -> measuring.Contestant:
        walks = {
            memory: measuring.Walk([clock.call(f"{name} {memory}", seconds)])
            for memory in ("cold", "hot")
        }
        return measuring.Contestant(name, "", walks, rest=clock.call(f"{name} rests", 0))

    measuring.alternate([contestant("a"), contestant("b")], measuring.FULL)
    turn = ["a cold", "a hot", "a rests", "b cold", "b hot", "b rests"]
    assert clock.made == turn * rounds


def test_cold_weights_exceed_the_caches_and_are_equal() -> None:
    weights = Weights(48, 64, 100_000)
    assert len(weights.q4_0) * weights.pair_bytes > 100_000
    assert len(weights.dense) * weights.dense[0].nbytes > 100_000
    addresses = {matrix.blocks.ctypes.data for pair in weights.q4_0 for matrix in pair}
    assert len(addresses) == 2 * len(weights.q4_0)
    for pair in weights.q4_0:
        for matrix, blocks in zip(pair, weights.blocks, strict=True):
            assert np.array_equal(matrix.blocks.reshape(blocks.shape), blocks)
    for dense in weights.dense:
        for matrix, values in zip(weights.q4_0[0], dense, strict=True):
            assert_bits_equal(matrix.dequantize(), values)


@pytest.mark.parametrize("K", [64, 1024, 4128])
@pytest.mark.parametrize("m", [1, 3, 9])
def test_every_error_is_within_the_bound(m: int, K: int, device: str) -> None:
    weights = Weights(40, K, 100_000)
    x = projections.activations(m, K)
    ours = projections.Mlxops(weights, device)
    for call in ours.calls(x):
        for result, W in zip(ours.results(call()), weights.dense[0], strict=True):
            wide_x, wide_W = x.astype(np.float64), W.astype(np.float64)
            bound = error_bound(K) * (np.abs(wide_x) @ np.abs(wide_W.T))
            assert (np.abs(result - wide_x @ wide_W.T) <= bound).all()


def test_the_error_is_that_of_the_results() -> None:
    weights, x = Weights(33, 96, 1), projections.activations(5, 96)
    expected = projections.exact(weights, x)
    rms = np.sqrt((expected**2).mean())
    a, b = (each.astype(np.float32) for each in expected)
    assert projections.error_rms((a, b), expected) < 1e-7
    b[4, 32] += 1
    assert projections.error_rms((a, b), expected) == pytest.approx(
        1 / rms / np.sqrt(expected.size), rel=1e-5
    )


def test_activations_begin_with_those_of_fewer_rows() -> None:
    assert_bits_equal(projections.activations(9, 64)[:4], projections.activations(4, 64))


@pytest.mark.parametrize("name", peers.INSTALL)
@pytest.mark.parametrize("shape", [(64, 256), (33, 544)], ids=str)
def test_peers_compute_the_same(name: str, shape: tuple[int, int]) -> None:
    module = "libggml" if name == "ggml" else name
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{name} is not installed: {peers.INSTALL[name]}")
    found, missing = peers.find(2, None)
    assert name not in missing
    weights = Weights(*shape, 300_000)
    loaded = found[name].load(weights)
    for m in (1, 4, 2):
        x = projections.activations(m, shape[1])
        expected = projections.exact(weights, x)
        calls = loaded.calls(x)
        assert len(calls) > 1
        for call in calls:
            results = loaded.results(call())
            assert all(result.dtype == np.float32 for result in results)
            assert all(result.shape == (m, shape[0]) for result in results)
            error = projections.error_rms(results, expected)
            assert error < (1e-2 if name == "ggml" else 3e-6)
        loaded.rest()


def test_a_folder_without_ggml(tmp_path: Path) -> None:
    found, missing = peers.find(1, tmp_path)
    assert "ggml" not in found
    assert missing["ggml"] == f"it cannot be used: there is no libggml-cpu in {tmp_path}"


def test_a_slow_peer_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as it has been timed, that is."""
    monkeypatch.setattr(projections, "PATIENCE_SECONDS", 1e-9)
    stopwatch = measuring.Stopwatch(100_000, measuring.QUICK)
    found = {"numpy": peers.NumPy(1)}
    measurements = list(projections.measure(stopwatch, "cpu", found, 64, 64, [1, 2]))
    assert {(each.name, each.shape["m"]) for each in measurements} == {
        ("mlxops", 1),
        ("mlxops", 2),
        ("numpy", 1),
    }


def test_three_copies_are_a_split(rng: np.random.Generator) -> None:
    qkv = rng.standard_normal((7, 20), np.float32)
    for copy, result in zip(
        splits.three_copies(qkv, 4, 6), mo.qkv_split(qkv, 4, 6, 10), strict=True
    ):
        assert_bits_equal(copy, result)


def test_the_last_level_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "CACHES", tmp_path)
    assert machine.last_level_cache_bytes() == machine.ASSUMED_CACHE_BYTES
    for i, size in enumerate(["32K", "32K", "1024K", "49152K"]):
        (tmp_path / f"index{i}").mkdir()
        (tmp_path / f"index{i}" / "size").write_text(size + "\n")
    assert machine.last_level_cache_bytes() == 48 << 20


# ---- The report ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.00 us"),
        (1.234e-6, "1.23 us"),
        (12.34e-6, "12.3 us"),
        (999e-6, "999 us"),
        (1e-3, "1.00 ms"),
        (12.345, "12345 ms"),
    ],
)
def test_times(seconds: float, text: str) -> None:
    assert report.time_text(seconds) == text


def test_a_peer_beside_ours(capsys: pytest.CaptureFixture[str]) -> None:
    def measurement(name: str, m: int, seconds: float, error: float) -> Measurement:
        shape = {"N": 1000, "K": 3200, "m": m}
        nbytes, macs = 3_600_000, 6_400_000 * m
        return Measurement(
            *("fused_dual_proj_q4_0", shape, "cold", name, f"{name} 1.0", seconds, 9, 40),
            *(nbytes, macs, 40e9, error),
        )

    report.print_projections(
        [
            measurement("mlxops", 1, 100e-6, 1e-7),
            measurement("other", 1, 150e-6, 4e-3),
            measurement("mlxops", 2, 200e-6, 2e-7),
        ]
    )
    assert capsys.readouterr().out == (
        "\n"
        "fused_dual_proj_q4_0, N = 1000, K = 3200: 3.6 MB\n"
        "m  weights    time  GB/s  GMAC/s  of read     other  ratio\n"
        "1     cold  100 us  36.0    64.0      90%    150 us   1.50\n"
        "2     cold  200 us  18.0    64.0      45%  too slow\n"
        "  mlxops: error RMS 2.0e-07; mlxops 1.0\n"
        "  other: error RMS 4.0e-03; other 1.0\n"
    )


# ---- The read bandwidth -------------------------------------------------------------------------


@pytest.mark.usefixtures("restore_threads")
@pytest.mark.parametrize("threads", [1, 3])
def test_reading_memory_reads_all_of_it(threads: int, rng: np.random.Generator) -> None:
    """Every size to some bytes, blocks that threads share, and memory at odd addresses."""
    mo.set_num_threads(threads)
    random = rng.integers(0, 256, (1 << 23) + 64, np.uint8)
    block = 8 * 8192
    sizes = [*range(70), *(n * block + d for n in (1, 2, 5, 100) for d in (-1, 0, 1, 13))]
    for offset in (0, 3):
        for size in sizes:
            memory = random[offset : offset + size]
            words = np.zeros(-(-size // 8), np.uint64)
            words.view(np.uint8)[:size] = memory
            assert _core.read_memory(memory) == int(np.bitwise_xor.reduce(words))


def test_memory_that_is_only_read() -> None:
    assert _core.read_memory(b"") == 0
    assert _core.read_memory(b"\x01\x02") == int.from_bytes(
        b"\x01\x02".ljust(8, b"\0"), sys.byteorder
    )


def test_memory_that_cannot_be_read() -> None:
    no_buffer: Any = 3
    with pytest.raises(TypeError, match="int"):
        _core.read_memory(no_buffer)
    with pytest.raises((BufferError, ValueError), match="contiguous"):
        _core.read_memory(np.zeros((4, 4))[:, ::2])
