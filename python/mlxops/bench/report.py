"""The measurements as tables: by rich on a terminal, if it is installed, else as plain text."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from mlxops.bench.measurement import Measurement

PROJECTION_COLUMNS = ["m", "weights", "time", "GB/s", "GMAC/s", "of read"]
SPLIT_COLUMNS = ["seq", "q | k | v", "qkv", "time", "GB/s", "of read"]

EXPLANATION = """\
time: median of one call. cold: operands from memory; hot: from the caches. GB/s: bytes of the Q4_0
weights by time, for a split bytes read and written. of read: these GB/s by those at which as many
threads read memory. ratio: the peer's time by ours. error RMS: against float64, relative."""


def time_text(seconds: float) -> str:
    """Three digits, and a unit."""
    value, unit = seconds * 1e6, "us"
    if value >= 1000:
        value, unit = value / 1000, "ms"
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"


def print_heading(machine: Mapping[str, Any], missing: Mapping[str, str]) -> None:
    """Where this is measured, and which peers are not."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    cache = machine["last_level_cache_bytes"] / 2**20
    print(f"{machine['device']}: {machine['description']}")
    print(f"{machine['threads']} CPU threads, last-level cache {cache:.0f} MiB; {versions}")
    for name, what_to_do in missing.items():
        print(f"not compared: {name} ({what_to_do})")
    print(EXPLANATION, flush=True)


def print_projections(measurements: Sequence[Measurement]) -> None:
    """A table of one shape, one line for every m, cold and hot."""
    shape, nbytes = measurements[0].shape, measurements[0].nbytes
    title = f"fused_dual_proj_q4_0, N = {shape['N']}, K = {shape['K']}: {nbytes / 1e6:.3g} MB"
    peers = peer_names(measurements)
    rows = []
    for line in lines(measurements):
        ours = line["mlxops"]
        rows.append(
            [
                str(ours.shape["m"]),
                ours.memory,
                time_text(ours.seconds),
                f"{ours.gb_per_s:.1f}",
                f"{ours.gmac_per_s:.1f}",
                f"{ours.share_of_read_bandwidth:.0%}",
                *versus(line, peers),
            ]
        )
    print_table(title, PROJECTION_COLUMNS + peer_columns(peers), rows)
    print_footnotes(measurements)


def print_splits(measurements: Sequence[Measurement]) -> None:
    """A table of all splits."""
    peers = peer_names(measurements)
    rows = []
    for line in lines(measurements):
        ours = line["mlxops"]
        seq, *spans = ours.shape.values()
        rows.append(
            [
                str(seq),
                " | ".join(map(str, spans)),
                ours.memory,
                time_text(ours.seconds),
                f"{ours.gb_per_s:.1f}",
                f"{ours.share_of_read_bandwidth:.0%}",
                *versus(line, peers),
            ]
        )
    print_table("qkv_split", SPLIT_COLUMNS + peer_columns(peers), rows)
    print_footnotes(measurements)


def lines(measurements: Sequence[Measurement]) -> list[dict[str, Measurement]]:
    """What belongs on one line: all that did the same, by name."""
    found: dict[tuple[Any, ...], dict[str, Measurement]] = {}
    for each in measurements:
        found.setdefault((*each.shape.values(), each.memory), {})[each.name] = each
    return list(found.values())


def peer_names(measurements: Sequence[Measurement]) -> list[str]:
    """Who was compared with, in order."""
    return [name for name in dict.fromkeys(each.name for each in measurements) if name != "mlxops"]


def peer_columns(peers: Sequence[str]) -> list[str]:
    """Two columns for each peer."""
    return [heading for name in peers for heading in (name, "ratio")]


def versus(line: Mapping[str, Measurement], peers: Sequence[str]) -> list[str]:
    """Every peer's time, and that time by ours: above 1, mlxops is faster."""
    cells = []
    for name in peers:
        if name in line:
            ratio = line[name].seconds / line["mlxops"].seconds
            cells += [time_text(line[name].seconds), f"{ratio:.2f}"]
        else:
            cells += ["too slow", ""]
    return cells


def print_footnotes(measurements: Sequence[Measurement]) -> None:
    """What was compared, and how exact each is: the largest error of any m."""
    descriptions = {each.name: each.description for each in measurements}
    for name, description in descriptions.items():
        errors = [
            each.error_rms
            for each in measurements
            if each.name == name and each.error_rms is not None
        ]
        error = f"error RMS {max(errors):.1e}; " if errors else ""
        print(f"  {name}: {error}{description}", flush=True)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns aligned to the right."""
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    if sys.stdout.isatty() and print_with_rich(title, columns, rows, sum(widths) + 2 * len(widths)):
        return
    print(f"\n{title}")
    for cells in (columns, *rows):
        padded = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        print("  ".join(padded).rstrip())


def print_with_rich(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], width: int
) -> bool:
    """Print a table on the terminal. False if there is no rich, or the terminal is too narrow."""
    try:
        from rich import box
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        return False
    console = Console(highlight=False)
    if width > console.width:
        return False
    table = Table(title=f"\n{title}", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1))
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    return True
