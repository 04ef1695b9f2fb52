"""Faults on demand: what a rank is to do to itself before one of its operations begins.

For tests of what a program does when a rank dies, stops, is slow or raises. A fault is
written as `rank=1,op=all_reduce,nth=5,do=kill`, several with `;` between. They count
the operations of one rank in the order in which its threads begin them.
"""

from __future__ import annotations

import difflib
import itertools
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from allhands.backends.call import OPERATIONS
from allhands.errors import InjectedError

__all__ = ["Fault", "Faults", "parse"]

_AROUND = (
    *("init_process_group", "new_group", "merge_remote_group"),
    *("all_gather_object", "gather_object", "broadcast_object_list"),
    *("scatter_object_list", "send_object_list", "recv_object_list"),
)
"""What Python carries out, with some of the others."""
_KEYS = ("rank", "op", "group", "nth", "attempt", "do")
_DEEDS = ("kill", "stop", "raise")
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_MOST_SECONDS = threading.TIMEOUT_MAX
_NO_END = 1 << 62


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong on demand. Immutable."""

    do: str
    """What happens: "kill", "stop", "raise" or "delay"."""
    seconds: float = 0.0
    """How long a delay is."""
    rank: int | None = None
    """Of the world; None: every one."""
    op: str = ""
    """Empty: every one."""
    group: str = ""
    """A group's name or description; empty: every one."""
    first: int = 1
    last: int = _NO_END
    """Which of the operations that it is meant for, counted from 1."""
    attempt: int | None = None
    """Which start of the ranks by the launcher, from 0; None: every one."""

    def is_meant_for(self, rank: int, group: Sequence[str], op: str) -> bool:
        """Whether it counts that operation of that rank; `group` are its names."""
        return (
            self.rank in (None, rank)
            and self.op in ("", op)
            and (not self.group or self.group in group)
            and self.attempt in (None, _attempt())
        )


class Faults:
    """Faults that a rank was asked for, and how often each has been met. Thread-safe.

    Example:
        ```python
        with dist.debug.faults("op=barrier,do=delay:50ms") as asked:
            dist.barrier()
        assert asked.num_done == 1
        ```
    """

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.num_done = 0
        """How many times this rank has done what was asked."""
        self._faults = tuple(faults)
        self._numbers = [itertools.count(1) for _ in self._faults]
        self._told: set[Fault] = set()
        self._lock = threading.RLock()  # a signal's handler may begin an operation

    def meet(self, rank: int, group: Sequence[str], op: str) -> None:
        """That operation of `rank` is about to begin; `group` are its group's names.

        Raises:
            InjectedError: it is asked for here.
        """
        for fault, number in self._due(rank, group, op):
            self._do(fault, f"rank {rank}, {op}, call {number}")

    def _due(self, rank: int, group: Sequence[str], op: str) -> list[tuple[Fault, int]]:
        due = []
        with self._lock:
            for fault, numbers in zip(self._faults, self._numbers, strict=True):
                if fault.is_meant_for(rank, group, op):
                    number = next(numbers)  # no signal's handler comes in between
                    if fault.first <= number <= fault.last:
                        due.append((fault, number))
        return due

    def _do(self, fault: Fault, where: str) -> None:
        with self._lock:
            self.num_done += 1
            is_new = fault not in self._told
            self._told.add(fault)
        if fault.do == "raise":
            raise InjectedError(f"fault on demand: {where}: do=raise")
        if is_new:
            what = f"delay:{fault.seconds:g}s" if fault.do == "delay" else fault.do
            sys.stderr.write(f"allhands: fault on demand: {where}: do={what}\n")
            sys.stderr.flush()
        if fault.do == "delay":
            time.sleep(fault.seconds)
        else:
            number = signal.SIGKILL if fault.do == "kill" else signal.SIGSTOP
            # To this thread, so that it does not go on before the signal has come.
            signal.pthread_kill(threading.get_ident(), number)


def parse(text: str, subject: str) -> tuple[Fault, ...]:
    """The faults that `text` asks for; `subject` is what has the text, for errors.

    Raises:
        ValueError: it cannot be read; what is wrong, and what can stand there, is said.
    """
    items = [item.strip() for item in text.split(";")]
    try:
        return tuple(_fault(item) for item in items if item)
    except ValueError as error:
        raise ValueError(
            f"{subject} is {text!r}: {error}; want for instance "
            f"'rank=1,op=all_reduce,nth=5,do=kill'"
        ) from None


def _fault(item: str) -> Fault:
    told: dict[str, str] = {}
    for pair in item.split(","):
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not (equals and value):
            raise ValueError(f"{pair.strip()!r} is not key=value")
        if key not in _KEYS:
            raise ValueError(f"there is no key {key!r}, only {', '.join(_KEYS)}")
        if key in told:
            raise ValueError(f"{key!r} is there twice in {item!r}; put ; between two")
        told[key] = value
    if "do" not in told:
        raise ValueError(f"{item!r} has no do=")
    do, seconds = _deed(told["do"])
    first, last = _nth(told["nth"]) if "nth" in told else (1, _NO_END)
    return Fault(
        do,
        seconds,
        rank=_number("rank", told["rank"]) if "rank" in told else None,
        op=_op(told["op"]) if "op" in told else "",
        group=told.get("group", ""),
        first=first,
        last=last,
        attempt=_number("attempt", told["attempt"]) if "attempt" in told else None,
    )


def _deed(text: str) -> tuple[str, float]:
    if text in _DEEDS:
        return text, 0.0
    found = re.fullmatch(r"delay:(\d+(?:\.\d+)?)(us|ms|s)", text, re.ASCII)
    if found is None:
        raise ValueError(
            f"do={text} is not {', '.join(_DEEDS)} or delay with a time, as delay:200ms"
        )
    seconds = float(found[1]) * _UNITS[found[2]]
    if seconds > _MOST_SECONDS:
        raise ValueError(f"do={text} is more than {_MOST_SECONDS:.0f}s")
    return "delay", seconds


def _nth(text: str) -> tuple[int, int]:
    """First and last: `5` is the fifth, `5-9` five of them, `5-` all from there."""
    first, dash, last = text.partition("-")
    start = _number("nth", first)
    end = _number("nth", last) if last else _NO_END if dash else start
    if not 1 <= start <= end:
        raise ValueError(f"nth={text} counts from 1, the first not above the last")
    return start, end


def _op(text: str) -> str:
    known = (*OPERATIONS, *_AROUND)
    if text in known:
        return text
    near = difflib.get_close_matches(text, known, 1)
    meant = f", perhaps {near[0]}" if near else f", only {', '.join(known)}"
    raise ValueError(f"there is no op {text!r}{meant}")


def _number(key: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{key}={text} is no number")
    return int(text)


def _attempt() -> int:
    text = os.environ.get("TORCHELASTIC_RESTART_COUNT") or "0"
    return int(text) if text.isascii() and text.isdecimal() else 0
