"""The command line: python -m mlxops COMMAND."""

from __future__ import annotations

import argparse
import sys


def main() -> int:
    """Run a command; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m mlxops", description="mlxops")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    selftest = commands.add_parser(
        "selftest",
        help="run every kernel on every device and compare the bits",
        description="Run every kernel on every device on fixed inputs, compare the bits of the "
        "results with those of the CPU and with stored digests, and time them. Exit status 1 if "
        "anything differs.",
    )
    selftest.add_argument("--device", metavar="NAME", help="this device only")
    arguments = parser.parse_args()

    from mlxops import selftest as program

    return program.run(arguments.device)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
