"""TraceLog: the file to which a rank writes all its operations, one JSON line each.

The first line names the rank. Each group has a line with its ranks before its first
operation. Each operation has a line with its flight record when it has begun, and
another one when it has ended. Lost operations have a line, too. So the file can be read
wherever it ends; an incomplete last line is ignored.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from allhands.debug.dumps import (
    REDUCTIONS,
    Dump,
    Entry,
    Group,
    integer,
    one_line,
    rank_number,
)
from allhands.elastic.record_memory import open_at_once
from allhands.rendezvous.place import MOST_RANKS

__all__ = ["Logs", "TraceLog", "logs_in", "read_logs"]

_SUFFIX = ".jsonl"
_FORMAT = 1
_MOST_BYTES = 1 << 28  # about a million operations, more than anybody looks at


class TraceLog:
    """The log of a rank in one world; for one thread at a time."""

    def __init__(self, folder: str, head: Mapping[str, Any]) -> None:
        """Make a new file in `folder`, and the folder if necessary.

        Args:
            folder: the folder.
            head: `rank`, `world_size`, `host`, `pid`, and `world`, a text that is the
                same on all ranks of the world and differs from other worlds.

        Raises:
            OSError: the file cannot be made.
        """
        os.makedirs(folder, exist_ok=True)
        name = f"trace_{head['world']}_rank_{head['rank']}{_SUFFIX}"
        self.path = os.path.join(folder, name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(self.path, flags, 0o666)
        self._num_bytes = 0
        try:
            self.add([{"trace": _FORMAT, **head}])
        except BaseException:
            os.close(self._fd)
            os.unlink(self.path)
            raise

    def add(self, told: Iterable[Mapping[str, Any]]) -> None:
        """Write one line for each; on return the kernel has them.

        Raises:
            OSError: the disk is full, or the file has reached its largest size.
        """
        text = "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in told)
        rest = memoryview(text.encode())
        self._num_bytes += len(rest)
        if self._num_bytes > _MOST_BYTES:
            raise OSError(f"it has {_MOST_BYTES >> 20} MiB, and may have no more")
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def close(self) -> None:
        """Close the file; `add` raises OSError from now on."""
        fd, self._fd = self._fd, -1
        os.close(fd)


def logs_in(path: str) -> list[str]:
    """Return the logs in a folder, or the log itself; empty if `path` is neither."""
    if not os.path.isdir(path):
        return [path] if path.endswith(_SUFFIX) and os.path.exists(path) else []
    names = sorted(name for name in os.listdir(path) if name.endswith(_SUFFIX))
    return [os.path.join(path, name) for name in names]


@dataclass
class _Read:
    """The content of one file."""

    dump: Dump
    entries: dict[tuple[str, bool, int], Entry]
    num_lost: int = 0

    @property
    def latest(self) -> int:
        """The last time in the file."""
        return max((entry.ended or entry.started or 0) for entry in self.all)

    @property
    def all(self) -> list[Entry]:
        return sorted(self.entries.values(), key=lambda entry: entry.created)


class Logs(NamedTuple):
    """The content of several files."""

    dumps: list[Dump]
    """The records."""
    lost: dict[int, int]
    """The number of operations that each rank lost, if any."""
    empty: list[str]
    """Files of ranks that died before they had written the first line."""


def read_logs(paths: Sequence[str]) -> Logs:
    """Read these files.

    Raises:
        ValueError: a file, which the message names, is not a log.
        OSError: a file cannot be read.
    """
    found = {path: _read(path) for path in paths}
    empty = [path for path, one in found.items() if one is None]
    read = [one for one in found.values() if one is not None]
    # Operations that have not ended last until the end of all that is known of their
    # world.
    latest: dict[str, int] = {}
    for one in read:
        if one.entries:
            world = one.dump.world
            latest[world] = max(one.latest, latest.get(world, 0))
    # A world in which nothing has begun must not come before everything else.
    least = min(latest.values(), default=0)
    lost: dict[int, int] = {}
    for one in read:
        lost[one.dump.rank] = lost.get(one.dump.rank, 0) + one.num_lost
    dumps = [
        replace(
            one.dump,
            entries=tuple(one.all),
            time=latest.get(one.dump.world, least),
        )
        for one in read
    ]
    lost = {rank: number for rank, number in lost.items() if number}
    return Logs(dumps, lost, empty)


def _read(path: str) -> _Read | None:
    """Return the content; None if the first line is not complete."""
    try:
        with open(path, encoding="utf-8", opener=open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError("it is no regular file")
            lines = _objects(file)
            head = next(lines, None)
            if head is None:
                return None
            read = _Read(_dump(head), {})
            groups: dict[str, Group] = {}
            for told in lines:
                if "lost" in told:
                    read.num_lost += integer(told["lost"], 0)
                elif "ranks" in told:
                    group = _group(told)
                    groups[group.name] = group
                else:
                    entry = _entry(told)
                    key = entry.group, entry.is_message, entry.number
                    read.entries[key] = entry
    except (KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path}: it is no file of {_SUFFIX} that a rank wrote for ALLHANDS_TRACE: "
            f"{type(error).__name__}: {error}"
        ) from error
    read.dump = replace(read.dump, groups=groups)
    return read


def _objects(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the object of each line, except an incomplete last one."""
    for line in lines:
        if not line.endswith("\n"):
            return
        told = json.loads(line)
        if not isinstance(told, dict):
            raise ValueError(f"{line[:40]!r} is no object")
        yield told


def _dump(head: Mapping[str, Any]) -> Dump:
    if head.get("trace") != _FORMAT:
        raise ValueError(
            f"its format is {head.get('trace')!r}, this version reads {_FORMAT}"
        )
    rank = rank_number(head["rank"])
    return Dump(
        rank=rank,
        world_size=integer(head["world_size"], rank + 1, MOST_RANKS),
        host=one_line(head["host"]),
        pid=integer(head["pid"], 0),
        reason="trace",
        time=0,
        groups={},
        entries=(),
        threads=(),
        world=one_line(head["world"]),
    )


def _group(told: Mapping[str, Any]) -> Group:
    ranks = tuple(rank_number(rank) for rank in told["ranks"])
    return Group(one_line(told["group"]), one_line(told["desc"]), ranks)


def _entry(told: Mapping[str, Any]) -> Entry:
    op, started, ended = one_line(told["op"]), told["started"], told["ended"]
    return Entry(
        group=one_line(told["group"]),
        op=op,
        number=integer(told["sequence"], 0),
        state=one_line(told["state"]),
        is_message=bool(told["is_message"]),
        dtype=one_line(told["dtype"]),
        count=integer(told["count"], 0),
        reduce_op=one_line(told["reduce_op"]) if op.startswith(REDUCTIONS) else "",
        partner=integer(told["partner"], -1),
        tag=integer(told["tag"]),
        is_async=bool(told["async_op"]),
        created=integer(told["issued"], 0),
        started=None if started is None else integer(started, 0),
        ended=None if ended is None else integer(ended, 0),
        thread=integer(told["thread"], 0),
    )
