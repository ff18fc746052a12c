"""The command line: python -m mlxops COMMAND."""

from __future__ import annotations

import argparse
import os
import sys

from mlxops import info, selftest, tune
from mlxops.bench import command as bench

# Each adds a parser of its own, which says what to run.
COMMANDS = [info, selftest, bench, tune]


def main() -> int:
    """Run a command; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m mlxops", description="mlxops")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_parser(commands)
    arguments = parser.parse_args()
    status: int = arguments.run(arguments)
    return status


if __name__ == "__main__":
    try:
        status = main()
        sys.stdout.flush()
    except KeyboardInterrupt:
        status = 130
    except BrokenPipeError:  # who reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"python -m mlxops: {error}", file=sys.stderr)
        status = 1
    sys.exit(status)
