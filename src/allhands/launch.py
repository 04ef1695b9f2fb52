"""`python -m allhands.launch`: `allhands.run` as torch.distributed.launch works.

Each rank gets `--local-rank=N` as its first argument, unless `--use-env` says that the
program reads LOCAL_RANK instead.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from allhands import run

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line `args`; return the exit code."""
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
