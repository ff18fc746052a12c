"""Generate text with a small language model whose projections run in mlxops.

    python examples/generate.py --prompt "What is a computer?"

It needs what `pip install '.[examples]'` installs, and fetches the model if it is not there yet.
This file is the program around the model; the model itself, layer by layer, is in llama.py.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from io import TextIOWrapper
from itertools import islice
from typing import NoReturn

import numpy as np
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

import llama
import mlxops as mo
import tokenizer
from fetch_model import FetchError, fetch
from llama import Array, Attention, Config, KVCache, Llama, RMSNorm
from stopwatch import Function, Stopwatch

VERIFIED = 8  # tokens in the batched verify at the end

PARTS: Mapping[str, Sequence[Function]] = {
    "projections (mlxops)": [
        (mo, "mul_mv_q4_0"),
        (mo, "fused_dual_proj_q4_0"),
        (mo, "qkv_split"),
    ],
    "output head (mlxops)": [(Llama, "head")],
    "attention (NumPy)": [(Attention, "__call__")],
    "norms, activation (NumPy)": [(RMSNorm, "__call__"), (llama, "swiglu")],
}

console = Console(highlight=False)
say = partial(console.print, markup=False, soft_wrap=True)


def main() -> int:
    """Run the program and return its exit status."""
    command_line = CommandLine()
    args = command_line.parse_args()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a model may write what a terminal cannot show
    try:
        if args.device is not None:
            mo.set_default_device(args.device)
        if args.threads is not None:
            mo.set_num_threads(args.threads)
        path = fetch() if args.model is None else args.model
        with mo.gguf.load(path) as file:
            config, vocabulary = Config.from_metadata(file.metadata), tokenizer.load(file.metadata)
            prompt = vocabulary.encode(tokenizer.chat_prompt(args.prompt)).ids
            capacity = len(prompt) + args.tokens + VERIFIED
            if capacity > config.context_length:
                raise ValueError(
                    f"{len(prompt)} tokens of prompt, {args.tokens} to generate and {VERIFIED} to "
                    f"verify do not fit the model's context of {config.context_length}"
                )
            say(f"Model: {path}")
            model = Llama(config, *requantise(file))
    except FetchError as error:
        command_line.exit(1, f"{command_line.prog}: {error}\n")
    except KeyError as error:
        command_line.error(f"{path} has no {error}, which this example needs")
    except (OSError, ValueError, OverflowError) as error:
        command_line.error(str(error))

    say(f"Projections on {mo.default_device().description}, CPU threads: {mo.get_num_threads()}")
    say(f"\n> {args.prompt}\n")
    caches = model.new_caches(capacity)
    with Stopwatch(PARTS) as prefill, console.status("Reading the prompt"):
        logits = model.head(model.forward(prompt, caches)[-1:])
    with Stopwatch(PARTS) as decode:
        stream(vocabulary, islice(greedy(model, logits, caches), args.tokens))
    console.print(timetable(prefill, len(prompt), decode, caches[0].length - len(prompt)))
    return 0 if verify(model, caches) else 1


def requantise(
    file: Mapping[str, mo.Q4_0Matrix | mo.gguf.GGUFTensor],
) -> tuple[dict[str, mo.Q4_0Matrix], dict[str, Array]]:
    """Turn the matrices of a file into Q4_0, unless they are, and its vectors into arrays."""
    matrices: dict[str, mo.Q4_0Matrix] = {}
    vectors: dict[str, Array] = {}
    before: Counter[str] = Counter()
    for name, tensor in track(file.items(), "Requantising to Q4_0", console=console):
        if isinstance(tensor, mo.Q4_0Matrix):
            matrices[name] = tensor
        elif len(tensor.shape) == 2:
            matrices[name] = tensor.quantize()
            before[tensor.type] += 1
        else:
            vectors[name] = tensor.dequantize()
    megabytes = sum(matrix.nbytes for matrix in matrices.values()) / 1e6
    types = " and ".join(f"{n} {type_}" for type_, n in before.items())
    say(f"Requantised {types or 'no'} matrices: {megabytes:.1f} MB of Q4_0 now")
    return matrices, vectors


def greedy(model: Llama, logits: Array, caches: Sequence[KVCache]) -> Iterator[int]:
    """Yield the likeliest next token, over and over, until the model ends its answer."""
    while (token := int(np.argmax(logits))) != model.config.eos_token_id:
        yield token
        logits = model.head(model.forward([token], caches))


def stream(vocabulary: Tokenizer, tokens: Iterable[int]) -> None:
    """Print tokens as they come; characters of several tokens wait until they are complete."""
    decoder = DecodeStream(skip_special_tokens=True)
    for token in tokens:
        console.out(decoder.step(vocabulary, token) or "", end="")
    console.out()


def timetable(prefill: Stopwatch, n_prefill: int, decode: Stopwatch, n_decode: int) -> Table:
    """Show where the time went, and tokens per second."""
    table = Table("where the time went", box=box.SIMPLE)
    columns = []
    for name, watch, n in ("prefill", prefill, n_prefill), ("decode", decode, n_decode):
        table.add_column(f"{name}, {n} tokens", justify="right")
        seconds = {**watch.seconds, "everything else": watch.total - sum(watch.seconds.values())}
        column = {part: f"{s:.2f} s {s / watch.total:6.1%}" for part, s in seconds.items()}
        columns.append({**column, "tokens per second": f"{n / watch.total:.1f}"})
    for part in columns[0]:
        table.add_row(part, *(column[part] for column in columns))
    return table


def verify(model: Llama, caches: Sequence[KVCache]) -> bool:
    """Decode tokens one by one, then again as one batch, and compare the bits of all logits.

    A speculative decoder whose verify has the bits of its decode loses nothing.
    """
    start = caches[0].length
    token = model.config.eos_token_id
    tokens, one_by_one = [], []
    for _ in range(VERIFIED):
        tokens.append(token)
        one_by_one.append(model.head(model.forward([token], caches)))
        token = int(np.argmax(one_by_one[-1]))
    for cache in caches:
        cache.length = start
    batched = model.head(model.forward(tokens, caches)).view(np.uint32)

    different = int(np.count_nonzero(batched != np.concatenate(one_by_one).view(np.uint32)))
    outcome = f"{different:,} of {batched.size:,} logits DIFFER"
    if different == 0:
        outcome = f"all {batched.size:,} logits are equal, bit for bit"
    say(f"{VERIFIED} tokens verified in one batch and decoded one by one: {outcome}")
    return different == 0


class CommandLine(argparse.ArgumentParser):
    """The options; a wrong one ends the program with one line and status 2."""

    def __init__(self) -> None:
        super().__init__(description="Generate text with Q4_0 projections that run in mlxops.")
        add = self.add_argument
        add(
            "--prompt",
            type=unicode,
            default="What is a computer?",
            help="what to ask the model (default: %(default)s)",
        )
        add(
            "--tokens",
            type=count,
            default=100,
            metavar="N",
            help="the most tokens to generate (default: %(default)s)",
        )
        add("--model", metavar="PATH", help="a GGUF file (default: in models/, fetched if missing)")
        add(
            "--device",
            choices=[device.name for device in mo.devices()],
            help=f"where the projections run (default: {mo.default_device().name})",
        )
        add(
            "--threads",
            type=count,
            metavar="N",
            help=f"threads of the CPU device (default: {mo.get_num_threads()})",
        )

    def error(self, message: str) -> NoReturn:
        """Say what is wrong in one line, and end the program with status 2."""
        self.exit(2, f"{self.prog}: {message}\n")


def unicode(argument: str) -> str:
    """Accept valid Unicode only; what a shell passes on need not be."""
    argument.encode()
    return argument


def count(argument: str) -> int:
    """Accept whole numbers from 1 up."""
    if not argument.isdecimal() or int(argument) == 0:
        raise argparse.ArgumentTypeError(f"{argument!r} is not a whole number from 1 up")
    return int(argument)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        console.print("\ninterrupted")
        sys.exit(130)
