"""Uncaught exceptions say which rank they come from: every line gets `[rank0]: `."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stderr
from types import TracebackType

__all__ = ["restore", "show_rank"]


class _RankHook:
    """Runs the hook that was there before and prefixes what it writes."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.before = sys.excepthook

    def __call__(
        self,
        kind: type[BaseException],
        error: BaseException,
        traceback: TracebackType | None,
    ) -> None:
        with redirect_stderr(io.StringIO()) as text:
            self.before(kind, error, traceback)
        lines = text.getvalue().splitlines()
        sys.stderr.write("".join(f"[rank{self.rank}]: {line}\n" for line in lines))


def show_rank(rank: int) -> None:
    """Prefix uncaught exceptions of this process with `rank`, until `restore`."""
    sys.excepthook = _RankHook(rank)


def restore() -> None:
    """Undo `show_rank`, unless somebody has replaced the hook since."""
    if isinstance(sys.excepthook, _RankHook):
        sys.excepthook = sys.excepthook.before
