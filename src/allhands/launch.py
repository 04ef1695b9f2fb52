"""`python -m allhands.launch`: `allhands.run` with torch.distributed.launch's habit.

Each rank gets `--local-rank=N` as its first argument, unless `--use-env` says that it
reads LOCAL_RANK instead.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from allhands import run

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> int:
    """The command."""
    parser = run.get_args_parser("python -m allhands.launch")
    parser.add_argument(
        "--use-env",
        "--use_env",
        action="store_true",
        help="do not pass --local-rank to the program: it reads LOCAL_RANK",
    )
    return run.start(parser, args)


if __name__ == "__main__":
    sys.exit(main())
