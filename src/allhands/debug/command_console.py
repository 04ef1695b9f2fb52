"""CommandConsole: what the commands print their tables on."""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

from rich.console import Console

__all__ = ["CommandConsole"]


class CommandConsole(Console):
    """Writes to stdout, `width` columns wide if neither it nor COLUMNS says more."""

    def __init__(self, width: int = 80, **options: Any) -> None:
        is_told = sys.stdout.isatty() or bool(os.environ.get("COLUMNS"))
        super().__init__(width=None if is_told else width, **options)

    def on_broken_pipe(self) -> NoReturn:
        """Raise BrokenPipeError if the reader has ended (rich: SystemExit with 1).

        `allhands.__main__` ends every command in the same way then.
        """
        raise
