"""The `allhands` command: a name per subcommand, each a module with `main(args)`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

__all__ = ["main"]

_COMMANDS = {"run": "allhands.run"}


def main(args: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="allhands", description="Distributed communication for Python arrays."
    )
    parser.add_argument("command", choices=_COMMANDS, help="run: start ranks")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="COMMAND --help")
    given = parser.parse_args(args)
    code: int = import_module(_COMMANDS[given.command]).main(given.arguments)
    return code


if __name__ == "__main__":
    sys.exit(main())
