"""Ends groups of torch.distributed that a program leaves open at its end."""

from __future__ import annotations

import atexit
import sys
import time
import weakref
from contextlib import ExitStack, suppress
from typing import Protocol

from allhands.backends.remote_exception import headline, told
from allhands.errors import DistError
from allhands.groups.process_group import GOODBYE_OF_THE_FAILED, LONGEST_GOODBYE

__all__ = ["open_groups"]


class _Group(Protocol):
    def end(self, grace: float, failure: tuple[str, str] | None = None) -> None: ...


open_groups: weakref.WeakSet[_Group] = weakref.WeakSet()
"""The groups that have met and still exist."""


@atexit.register
def _end_groups() -> None:
    """End the groups of a program that did not, so that no thread needs the GIL later.

    This takes at most 10 s. If an exception ends the program, it takes at most half a
    second, because the others should soon learn that this rank has ended.
    """
    error = getattr(sys, "last_value", None)  # an uncaught exception
    failure = None if error is None else (headline(error), told(error))
    grace = GOODBYE_OF_THE_FAILED if failure else LONGEST_GOODBYE
    end = time.monotonic() + grace.total_seconds()
    with ExitStack() as ends:
        for group in list(open_groups):
            ends.callback(_end_group, group, end, failure)


def _end_group(group: _Group, end: float, failure: tuple[str, str] | None) -> None:
    with suppress(DistError):  # nobody is left to receive it
        group.end(max(0.0, end - time.monotonic()), failure)
