"""The command that times the kernels on the user's own GPU, and keeps which are the fastest."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np

import mlxops as mo
from mlxops import _core, _tuning
from mlxops._tuning import Choice, Tuning
from mlxops.bench.measuring import Contestant, Effort, Walk, alternate
from mlxops.bench.projections import activations
from mlxops.bench.weights import Float32, Weights

DESCRIPTION = """\
Time the kernels that a projection can use on this machine's GPU, for each class of shapes, check
that all give the same bits, and keep the fastest in the user's cache folder, where every later
process finds them. Without this, kernels are chosen by the shape alone. It takes about a minute."""

K = 4096

# The weights are copies that exceed every GPU's caches fourfold.
COLD_BYTES = 256 << 20

EFFORT = Effort(rounds=7, burst_seconds=0.02)

# A kernel must be so much faster than the present one to take its place: less is chance.
MARGIN = 1.02

Pairs = Sequence[tuple[mo.Q4_0Matrix, mo.Q4_0Matrix]]


class DifferentBitsError(Exception):
    """A kernel does not give the bits of the others."""


def classes(limits: Sequence[int]) -> list[tuple[int | None, int]]:
    """Each class by its limit, None for the last, and a size that stands for it."""
    return [*((limit, limit) for limit in limits), (None, 2 * limits[-1])]


def call(
    variant: str, pair: tuple[mo.Q4_0Matrix, mo.Q4_0Matrix], x: Float32, device: str
) -> tuple[Float32, Float32]:
    """One projection with a kernel of one's choice."""
    try:
        _core.force_projection_variant(variant)
        return mo.fused_dual_proj_q4_0(*pair, x, device=device)
    finally:
        _core.force_projection_variant(None)


def check_bits(variants: Sequence[str], pairs: Pairs, x: Float32, device: str) -> None:
    """Every kernel gives the bits of the first one, or DifferentBitsError says which does not."""
    for pair in pairs:  # the first call with a matrix may take it to the GPU
        call(variants[0], pair, x, device)
    expected = np.stack(call(variants[0], pairs[0], x, device))
    for variant in variants[1:]:
        results = np.stack(call(variant, pairs[0], x, device))
        if not np.array_equal(results.view(np.uint32), expected.view(np.uint32)):
            raise DifferentBitsError(
                f"the kernel {variant} does not give the bits of {variants[0]} on this GPU: "
                "please report this"
            )


def seconds(variants: Sequence[str], pairs: Pairs, x: Float32, device: str) -> dict[str, float]:
    """What a call takes with each kernel, from host arrays to host arrays."""
    walks = {
        variant: Walk([partial(call, variant, pair, x, device) for pair in pairs])
        for variant in variants
    }
    alternate([Contestant(name, "", {"cold": walk}) for name, walk in walks.items()], EFFORT)
    return {name: walk.seconds for name, walk in walks.items()}


def fastest(times: dict[str, float], present: str) -> str:
    """The fastest kernel, or the present one where that is as good."""
    best = min(times, key=times.__getitem__)
    return present if times.get(present, float("inf")) <= MARGIN * times[best] else best


def measure(device: str) -> Iterator[Choice]:
    """Time the kernels for each class of shapes."""
    m_limits, row_limits = _core.projection_classes()
    variants = _core.projection_variants()
    for rows_up_to, rows in classes(row_limits):
        pairs = Weights(rows // 2, K, COLD_BYTES).q4_0
        for m_up_to, m in classes(m_limits):
            x = activations(m, K)
            candidates = [name for name, inputs in variants.items() if inputs == m]
            check_bits(candidates, pairs, x, device)
            times = seconds(candidates, pairs, x, device)
            chosen = fastest(times, _core.projection_choice(device, m, rows))
            rounded = {name: round(time * 1e6, 1) for name, time in times.items()}
            yield Choice(m_up_to, rows_up_to, chosen, rounded)


# ---- The file ------------------------------------------------------------------------------------


def kept(file: Path) -> list[Tuning]:
    """What is kept; nothing, with a word on standard error, where the file is damaged."""
    try:
        return _tuning.read(file)
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        print(f"what is kept in {file} is not used: {error}", file=sys.stderr)
        return []


def others(tunings: Sequence[Tuning], gpu: mo.Device) -> list[Tuning]:
    """Those of other GPUs."""
    return [each for each in tunings if (each.device, each.gpu) != (gpu.name, gpu.description)]


# ---- The command ---------------------------------------------------------------------------------


def size(limit: int | None, limits: Sequence[int]) -> str:
    """A limit, for people."""
    return f"> {limits[-1]}" if limit is None else f"<= {limit}"


def line(choice: Choice) -> str:
    """A choice, for people: the fastest first."""
    m_limits, row_limits = _core.projection_classes()
    times = sorted(choice.microseconds.items(), key=lambda item: item[0] != choice.variant)
    said = ", ".join(f"{name} {microseconds:.1f} us" for name, microseconds in times)
    return f"{size(choice.rows_up_to, row_limits):>8}  {size(choice.m_up_to, m_limits):>4}  {said}"


HEADING = "    rows     m  the kernel that is used, and the others"


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "tune", help="find the fastest kernels on this machine's GPU", description=DESCRIPTION
    )
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--show", action="store_true", help="print what is kept, and time nothing")
    only.add_argument("--forget", action="store_true", help="go back to the defaults")
    parser.add_argument("--json", action="store_true", help="print the choices as JSON")
    parser.set_defaults(run=run)


def find_gpu() -> mo.Device | None:
    """The GPU, if there is one."""
    return next((device for device in mo.devices() if device.name != "cpu"), None)


def report(tuning: Tuning, as_json: bool) -> None:
    """Print what is kept for a GPU."""
    if as_json:
        print(json.dumps(asdict(tuning), indent=1))
        return
    print(HEADING)
    for choice in tuning.choices:
        print(line(choice))


def time_kernels(gpu: mo.Device, quiet: bool) -> Tuning:
    """Time the kernels; print each choice as soon as it is there."""
    choices = []
    if not quiet:
        print(f"{gpu.name}: {gpu.description}; a call with weights from memory, K = {K}\n{HEADING}")
    for choice in measure(gpu.name):
        choices.append(choice)
        if not quiet:
            print(line(choice), flush=True)
    return Tuning(gpu.name, gpu.description, choices)


def tune(gpu: mo.Device, file: Path, as_json: bool) -> int:
    """Time, use and keep; return the exit status."""
    if file.exists() and not file.is_file():
        print(f"{file} is no file that can be replaced", file=sys.stderr)
        return 1
    tunings = kept(file)
    try:
        tuning = time_kernels(gpu, quiet=as_json)
    except DifferentBitsError as error:
        print(error, file=sys.stderr)
        return 1
    _tuning.use(tuning)
    _tuning.write(file, [*others(tunings, gpu), tuning])
    if as_json:
        report(tuning, as_json)
    else:
        print(f"kept in {file}")
    return 0


def run(arguments: argparse.Namespace) -> int:
    """Tune, show or forget; return the exit status."""
    gpu, file = find_gpu(), _tuning.path()
    if gpu is None:
        reasons = "; ".join(f"{name}: {why}" for name, why in mo.devices().missing.items())
        print(f"there is no GPU here to be tuned ({reasons})", file=sys.stderr)
        return 1
    if file is None:
        print("there is no cache folder; MLXOPS_TUNING can name a file", file=sys.stderr)
        return 1
    if not arguments.show and not arguments.forget:
        return tune(gpu, file, arguments.json)
    tunings = kept(file)
    rest = others(tunings, gpu)
    if arguments.forget:
        if len(rest) < len(tunings):
            _tuning.write(file, rest)
        print(f"nothing is kept for {gpu.description} any more")
        return 0
    mine = [each for each in tunings if each not in rest]
    if not mine:
        print(f"nothing is kept for {gpu.description}: the defaults are used")
    for tuning in mine:
        report(tuning, arguments.json)
    return 0
