"""The command: its options, and what is measured without any."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import mlxops as mo
from mlxops.bench import machine, peers, plot, projections, report, splits
from mlxops.bench.measurement import Measurement
from mlxops.bench.measuring import FULL, QUICK, Stopwatch

SHAPES = [(4096, 4096), (8192, 2048), (1024, 4096), (12288, 5120), (256, 2048)]
ROWS = [1, 2, 3, 4, 8, 32, 128]
SPLITS = [
    (16, 2048, 2048, 4096),
    (4096, 2048, 2048, 4096),
    (128, 256, 256, 2048),
    (4106, 256, 256, 2048),
]

QUICK_SHAPES = [(4096, 4096)]
QUICK_ROWS = [1, 4, 32]
QUICK_SPLITS = [(128, 256, 256, 2048)]

DESCRIPTION = """\
Time the dual projection and the QKV split through the public functions, with the weights cold (many
copies, read in turn) and hot (one pair, from the caches), in turn with reading memory by the same
number of threads. Without options it takes about a minute. How it is measured:
benchmarks/README.md."""


def numbers(text: str, names: str) -> list[int]:
    """Positive integers, one for each of the names; any number of them for one name and dots."""
    try:
        found = [int(each) for each in text.split(",")]
    except ValueError:
        found = []
    right_count = names.endswith("...") or len(found) == names.count(",") + 1
    if not found or not right_count or min(found) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not {names}, all positive integers")
    if max(found) >= 2**31:
        raise argparse.ArgumentTypeError(f"{max(found)} is above 2^31 - 1")
    return found


def shape(text: str) -> tuple[int, int]:
    """N,K."""
    N, K = numbers(text, "N,K")
    if K % 32 != 0:
        raise argparse.ArgumentTypeError(f"K = {K} is not a multiple of 32")
    return N, K


def split(text: str) -> tuple[int, int, int, int]:
    """SEQ,Q,K,V."""
    seq, q_sp, k_sp, v_sp = numbers(text, "SEQ,Q,K,V")
    if q_sp + k_sp + v_sp >= 2**31:
        raise argparse.ArgumentTypeError(f"Q + K + V = {q_sp + k_sp + v_sp} is above 2^31 - 1")
    return seq, q_sp, k_sp, v_sp


def rows(text: str) -> list[int]:
    """M,..., each once."""
    return list(dict.fromkeys(numbers(text, "M,...")))


def threads(text: str) -> int:
    """A number of threads."""
    return numbers(text, "N")[0]


def device(text: str) -> str:
    """The name of a device that is there."""
    names = [each.name for each in mo.devices()]
    if text not in names:
        raise argparse.ArgumentTypeError(f"no device '{text}' here; there is {', '.join(names)}")
    return text


def picture(text: str) -> Path:
    """A file that can be written, by a matplotlib that is there."""
    if find_spec("matplotlib") is None:
        raise argparse.ArgumentTypeError("this needs matplotlib: pip install matplotlib")
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text} is no file that can be written")
    return path


def folder(text: str) -> Path:
    """A folder that is there."""
    path = Path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {text}")
    return path


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "bench", help="time the operations, and others beside them", description=DESCRIPTION
    )
    add = parser.add_argument
    add(
        "--shape",
        metavar="N,K",
        type=shape,
        action="append",
        default=[],
        help="a dual projection by two [N, K] weights; can be repeated",
    )
    add("--m", metavar="M,...", type=rows, help="the rows of x, for every --shape")
    add(
        "--split",
        metavar="SEQ,Q,K,V",
        type=split,
        action="append",
        default=[],
        help="a QKV split; can be repeated. Given --shape or --split, nothing else is timed",
    )
    add("--threads", metavar="N", type=threads, help="threads of the CPU device, and of the peers")
    add(
        "--device",
        metavar="NAME",
        type=device,
        default=mo.default_device().name,
        help="where mlxops runs; by default on %(default)s",
    )
    add(
        "--compare",
        action="store_true",
        help="time NumPy, ggml, torch and MLX as well, as far as they are installed",
    )
    add(
        "--ggml",
        metavar="FOLDER",
        type=folder,
        help="compare, with a build of ggml's libraries in place of the package libggml-python",
    )
    add("--quick", action="store_true", help="fewer shapes, and shorter bursts")
    add("--json", action="store_true", help="print all measurements as JSON, and no tables")
    add("--plot", metavar="FILE.png", type=picture, help="draw the projections (with matplotlib)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure and print; return the exit status."""
    chosen = bool(arguments.shape or arguments.split)
    quick: bool = arguments.quick
    shapes = arguments.shape if chosen else QUICK_SHAPES if quick else SHAPES
    split_shapes = arguments.split if chosen else QUICK_SPLITS if quick else SPLITS
    ms = arguments.m or (QUICK_ROWS if quick else ROWS)
    if arguments.plot and not shapes:
        print("--plot draws projections: give a --shape", file=sys.stderr)
        return 2
    try:
        measure_all(arguments, shapes, ms, split_shapes)
    except MemoryError as error:
        print(f"not enough memory: {error}", file=sys.stderr)
        return 1
    return 0


def measure_all(
    arguments: argparse.Namespace,
    shapes: Sequence[tuple[int, int]],
    ms: Sequence[int],
    split_shapes: Sequence[tuple[int, int, int, int]],
) -> None:
    """Measure; print each table as soon as it is there, or all as JSON in the end."""
    if arguments.threads:
        mo.set_num_threads(arguments.threads)
    compare = arguments.compare or arguments.ggml is not None
    here = machine.describe(arguments.device)
    found, missing = peers.find(here["threads"], arguments.ggml) if compare else ({}, {})
    stopwatch = Stopwatch(here["last_level_cache_bytes"], QUICK if arguments.quick else FULL)
    tables = not arguments.json
    if tables:
        report.print_heading(here, missing)

    projected: list[Measurement] = []
    for N, K in shapes:
        table = list(projections.measure(stopwatch, arguments.device, found, N, K, ms))
        projected += table
        if tables:
            report.print_projections(table)
    divided = [
        measurement
        for seq, *spans in split_shapes
        for measurement in splits.measure(stopwatch, arguments.device, compare, seq, spans)
    ]
    if divided and tables:
        report.print_splits(divided)

    if arguments.json:
        measurements = [each.as_json() for each in projected + divided]
        everything = {"machine": here, "missing_peers": missing, "measurements": measurements}
        print(json.dumps(everything, indent=1))
    if arguments.plot:
        plot.save(projected, arguments.plot)
