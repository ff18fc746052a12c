"""The command line: python -m mlxops COMMAND."""

from __future__ import annotations

import argparse
import sys

from mlxops import selftest
from mlxops.bench import command as bench

# Each adds a parser of its own, which says what to run.
COMMANDS = [selftest, bench]


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
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
