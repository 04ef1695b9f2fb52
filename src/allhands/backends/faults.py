"""Faults on demand: what a rank does to itself at one of its operations.

They are for tests of a program's behaviour when a rank dies, stops, is slow, raises, or
loses its connections to other hosts. Faults count the operations of one rank in the
order in which its threads begin them. `fault_text` describes their text form.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from allhands.errors import InjectedError
from allhands.rendezvous.log import LogLevel, say

__all__ = ["NO_END", "STORE", "Fault", "Faults"]

NO_END = 1 << 62
STORE = "store."
"""The prefix of the names of store requests."""


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong on demand. Immutable."""

    do: str
    """The action: "kill", "exit", "stop", "raise", "delay" or "drop-link"."""
    seconds: float = 0.0
    """The length of a delay."""
    peer: int | None = None
    """The world rank to which the link is dropped; None: all ranks of other hosts."""
    code: int = 0
    """The exit code of the process."""
    rank: int | None = None
    """The world rank; None means every rank."""
    op: str = ""
    """Empty means every operation, but no request to a store."""
    group: str = ""
    """A group's name or description; empty means every group."""
    first: int = 1
    last: int = NO_END
    """The first and last operation to which it applies, counted from 1."""
    after: float = 0.0
    """Seconds after the operation begins; 0 means just before it begins."""
    attempt: int | None = None
    """The launcher's start of the ranks, from 0; None means every start."""

    def is_meant_for(self, rank: int, group: Sequence[str], op: str) -> bool:
        """Return whether it counts this operation of a group with these names."""
        return (
            self.rank in (None, rank)
            and (self.op == op or not (self.op or op.startswith(STORE)))
            and (not self.group or self.group in group)
            and self.attempt in (None, _attempt())
        )


def _no_link(_: int | None) -> int:
    return 0


class Faults:
    """The faults of a rank, and how often each was met. Thread-safe.

    Example:
        ```python
        with dist.debug.faults("op=barrier,do=delay:50ms") as asked:
            dist.barrier()
        assert asked.num_done == 1
        ```
    """

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.num_done = 0
        """How often this rank has carried out a fault."""
        self.all = tuple(faults)
        self._numbers = [itertools.count(1) for _ in self.all]
        self._told: set[tuple[Fault, str]] = set()
        self._lock = threading.RLock()  # a signal handler may begin an operation

    def meet(
        self,
        rank: int,
        group: Sequence[str],
        op: str,
        drop_link: Callable[[int | None], int] = _no_link,
    ) -> None:
        """Meet the faults of an operation of `rank`; `group` has the group's names.

        `drop_link` cuts the connection to a rank, or to all ranks of other hosts, and
        returns the number of cuts.

        Raises:
            InjectedError: a fault asks for it.
        """
        for fault, number in self._due(rank, group, op):
            where = f"rank {rank}, {op}, call {number}"
            where += f", after {fault.after:g}s" if fault.after else ""
            act = partial(self._do, fault, rank, where, drop_link)
            if fault.after:  # by another thread, as this one has the operation to do
                timer = threading.Timer(fault.after, act)
                timer.name, timer.daemon = "allhands fault", True
                timer.start()
            else:
                act()

    def _due(self, rank: int, group: Sequence[str], op: str) -> list[tuple[Fault, int]]:
        due = []
        with self._lock:
            for fault, numbers in zip(self.all, self._numbers, strict=True):
                if fault.is_meant_for(rank, group, op):
                    number = next(numbers)  # no signal handler can interrupt this
                    if fault.first <= number <= fault.last:
                        due.append((fault, number))
        return due

    def _do(
        self,
        fault: Fault,
        rank: int,
        where: str,
        drop_link: Callable[[int | None], int],
    ) -> None:
        what, was_done = fault.do, True
        if fault.do == "exit":
            what = f"exit:{fault.code}"
        elif fault.do == "delay":
            what = f"delay:{fault.seconds:g}s"
        elif fault.do == "drop-link":
            count = drop_link(fault.peer)
            what, was_done = f"drop-link ({count} connections cut)", count > 0
        with self._lock:
            self.num_done += was_done
            is_new = (fault, what) not in self._told
            self._told.add((fault, what))
        if fault.do == "raise":
            raise InjectedError(f"fault on demand: {where}: do=raise")
        if is_new:
            text = f"fault on demand: {where}: do={what}"
            say(LogLevel.WARNING, "faults", rank, text)
        if fault.do == "delay":
            time.sleep(fault.seconds)
        elif fault.do == "exit":
            os._exit(fault.code)
        elif fault.do != "drop-link":
            number = signal.SIGKILL if fault.do == "kill" else signal.SIGSTOP
            # To this thread, so that it does not continue before the signal has come.
            signal.pthread_kill(threading.get_ident(), number)


def _attempt() -> int:
    text = os.environ.get("TORCHELASTIC_RESTART_COUNT") or "0"
    return int(text) if text.isascii() and text.isdecimal() else 0
