"""Dump: what one rank knew of its operations at one moment, parsed from JSON.

Fields that torch's flight recorder also has have the same names; see
docs/reference/flight-record.md. All values are checked while they are read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

from allhands._C import ANY_TAG
from allhands.backends.frames import SourceLine
from allhands.backends.printable import printable
from allhands.rendezvous.place import MOST_RANKS

__all__ = [
    "ELSEWHERE",
    "ENDED",
    "NOT_HERE",
    "REDUCTIONS",
    "SCHEMA",
    "Dump",
    "Entry",
    "Failure",
    "Group",
    "Thread",
    "integer",
    "one_line",
    "rank_number",
]

SCHEMA = 1
"""The version of the files; another number means another schema."""
NOT_HERE = "no process of it that answers was found on this host"
ELSEWHERE = "is on another host"
"""Reasons why a rank has no record."""
ENDED = "has ended"
"""A rank whose process has ended in an unknown way."""
REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter", "scan", "exscan")
"""The prefixes of operations that have a reduce operation."""
_WAITING = ("scheduled", "started")
_END = 1 << 63


@dataclass(frozen=True)
class Group:
    """A group as one of its ranks knows it."""

    name: str
    desc: str
    ranks: tuple[int, ...]
    """World ranks, by group rank."""

    def is_world(self, size: int) -> bool:
        """Return whether its ranks have the same numbers as in a world of `size`."""
        return self.ranks == tuple(range(size))

    def __str__(self) -> str:
        return f"'{self.name}'" if self.desc in ("", "undefined") else f"'{self.desc}'"


@dataclass(frozen=True)
class Entry:
    """One operation of a rank."""

    group: str
    op: str
    number: int
    """The number of the collective in the group, or of the rank's message there."""
    state: str
    """"scheduled", "started", "completed", "failed"; or "ended" in an unknown way."""
    is_message: bool
    dtype: str
    count: int
    reduce_op: str
    partner: int
    """The root or peer, a group rank; -1 for none, or for any source."""
    tag: int
    is_async: bool
    created: int
    """Nanoseconds since 1970."""
    started: int | None = None
    ended: int | None = None
    """Nanoseconds since 1970; None if not yet, or not measured."""
    thread: int = 0
    """The thread of the call."""
    frames: tuple[SourceLine, ...] = ()
    """The place of the call, innermost first; empty if no thread waits in it."""
    is_waited_for: bool = False
    """Whether a thread waited for this group's operations under way."""

    @property
    def is_under_way(self) -> bool:
        """Whether it had not ended."""
        return self.state in _WAITING

    @property
    def num_bytes(self) -> int:
        """The bytes of the elements on which the ranks agree."""
        return self.count * _width(self.dtype)

    @property
    def place(self) -> SourceLine | None:
        """The line of the call, if known."""
        return self.frames[0] if self.frames else None

    def __str__(self) -> str:
        if self.op == "barrier":
            return self.op
        parts = [self.dtype, f"count {self.count}"]
        if self.reduce_op and not self.is_message:
            parts.append(self.reduce_op)
        if self.op == "probe":
            parts.clear()
        if self.is_message:
            way = "to" if self.op == "send" else "from"
            peer = "any rank" if self.partner < 0 else f"rank {self.partner}"
            tag = "any tag" if self.tag == ANY_TAG else f"tag {self.tag}"
            parts += [f"{way} {peer}", tag]
        elif self.partner >= 0:
            parts.append(f"root {self.partner}")
        return f"{self.op}({', '.join(parts)})"


@dataclass(frozen=True)
class Thread:
    """A Python thread of a rank."""

    name: str
    is_main: bool
    inside: str
    """The function of allhands in which it is; empty if none."""
    frames: tuple[SourceLine, ...]

    def __str__(self) -> str:
        where = str(self.frames[0]) if self.frames else "an unknown line"
        return f"{where} (in {self.inside})" if self.inside else where


@dataclass(frozen=True)
class Failure:
    """The exception that a rank was about to raise, or that ended it."""

    type: str
    message: str
    ranks: tuple[int, ...]
    """World ranks: the `ranks` of the exception."""
    group: str
    """The group whose operation failed; empty if none."""
    frames: tuple[SourceLine, ...]


@dataclass(frozen=True)
class Dump:
    """What one rank knew at one moment. Immutable."""

    rank: int
    world_size: int
    host: str
    pid: int
    reason: str
    time: int
    """Nanoseconds since 1970."""
    groups: Mapping[str, Group]
    entries: tuple[Entry, ...]
    """Sorted by the time of issue."""
    threads: tuple[Thread, ...]
    failure: Failure | None = None
    world: str = ""
    """The same on all ranks of a world and on no others; empty if unknown."""
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The JSON as it was read."""

    @classmethod
    def of(cls, told: Any) -> Dump:
        """Parse the JSON object of one rank.

        Raises:
            ValueError: it is not such an object, or has another schema.
        """
        if not isinstance(told, dict) or "schema" not in told:
            raise ValueError("it is no flight record: it has no schema")
        try:
            if told["schema"] != SCHEMA:
                raise ValueError(
                    f"its schema is {told['schema']!r}, this version reads {SCHEMA}"
                )
            return cls(
                # -1: the process had no world.
                rank=integer(told["rank"], -1, MOST_RANKS - 1),
                world_size=integer(told["world_size"], -1, MOST_RANKS),
                host=one_line(told["host"]),
                pid=integer(told["pid"]),
                reason=one_line(told["reason"]),
                time=integer(told["time_ns"]),
                groups={one_line(k): _group(v) for k, v in told["pg_config"].items()},
                entries=tuple(_entry(entry) for entry in told["entries"]),
                threads=tuple(_thread(thread) for thread in told["threads"]),
                failure=_failure(told["error"]) if told.get("error") else None,
                raw=told,
            )
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise ValueError(
                f"it is no flight record: {type(error).__name__}: {error}"
            ) from error

    def group_of(self, name: str) -> Group:
        """Return the group with this name, even if the record does not have it."""
        return self.groups.get(name) or Group(name, "", _all_ranks(self.world_size))

    def age(self, entry: Entry) -> float:
        """Return the seconds from the issue of `entry` to this record."""
        return max(0.0, (self.time - entry.created) / 1e9)

    @property
    def main_thread(self) -> Thread | None:
        """The main thread, which shows where the program itself was."""
        return next((thread for thread in self.threads if thread.is_main), None)


@lru_cache(maxsize=1)
def _all_ranks(size: int) -> tuple[int, ...]:
    return tuple(range(size))


@cache
def _width(dtype: str) -> int:
    """Return the bytes of an element of "float32", "bfloat16", "float4_e2m1fn_x2"."""
    bits = re.search(r"\d{1,4}", dtype)
    return max(int(bits[0]) // 8, 1) if bits else 1


def integer(value: Any, least: int = -_END, most: int = _END - 1) -> int:
    """Return `value`, an integer from `least` to `most`, or of 64 bits.

    Raises:
        TypeError: it is not such an integer.
    """
    if not isinstance(value, int):
        raise TypeError(f"{value!r:.40} is no number")
    if not least <= value <= most:
        raise TypeError(f"{value!r:.40} is not in [{least}, {most}]")
    return value


def one_line(value: Any) -> str:
    """Return `value` as a text of one line that any terminal shows."""
    return printable(str(value), kept="")


def rank_number(value: Any) -> int:
    """Return `value`, the number of a rank.

    Raises:
        TypeError: it is none.
    """
    return integer(value, 0, MOST_RANKS - 1)


def _time(value: Any) -> int | None:
    return None if value is None else integer(value)


def _group(told: Any) -> Group:
    ranks = tuple(rank_number(rank) for rank in json.loads(told["ranks"]))
    return Group(one_line(told["name"]), one_line(told["desc"]), ranks)


def _places(told: Any) -> tuple[SourceLine, ...]:
    return tuple(
        SourceLine(
            one_line(place["name"]),
            one_line(place["filename"]),
            integer(place["line"]),
        )
        for place in told
    )


def _entry(told: Any) -> Entry:
    is_message = bool(told["is_p2p"])
    return Entry(
        group=one_line(told["process_group"][0]),
        op=one_line(told["op"]),
        number=integer(told["p2p_seq_id" if is_message else "collective_seq_id"]),
        state=one_line(told["state"]),
        is_message=is_message,
        dtype=one_line(told["dtype"]),
        count=integer(told["count"]),
        reduce_op=one_line(told["reduce_op"]),
        partner=integer(told["partner"]),
        tag=integer(told["tag"]),
        is_async=bool(told["async_op"]),
        created=integer(told["time_created_ns"]),
        started=_time(told["time_discovered_started_ns"]),
        ended=_time(told["time_discovered_completed_ns"]),
        thread=integer(told["thread"]),
        frames=_places(told["frames"]),
        is_waited_for=bool(told.get("is_waited_for")),
    )


def _thread(told: Any) -> Thread:
    return Thread(
        one_line(told["name"]),
        bool(told["is_main"]),
        one_line(told["inside"]),
        _places(told["frames"]),
    )


def _failure(told: Any) -> Failure:
    return Failure(
        one_line(told["type"]),
        printable(str(told["message"])),
        tuple(rank_number(rank) for rank in told["ranks"]),
        one_line(told["group"]),
        _places(told["frames"]),
    )
