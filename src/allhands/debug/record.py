"""dump: returns this rank's flight record, and where its threads are."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from types import FrameType, TracebackType
from typing import Any

from allhands import errors
from allhands.backends import failures
from allhands.backends.frames import (
    SourceLine,
    called_frame,
    inside,
    source_lines,
    source_lines_of_traceback,
)
from allhands.debug.dumps import REDUCTIONS, SCHEMA
from allhands.elastic.record_memory import open_at_once
from allhands.errors import DistError
from allhands.groups.device_part import with_parts
from allhands.groups.visible_group import VisibleGroup
from allhands.groups.world import World, current

__all__ = ["dump", "told_now", "write"]

_VERSION = "2.10"  # of torch's record, which has these fields
_GROUP = re.compile(r"(?:on|of) group '([^']*)'")
_RAISING_NS = 10**9  # the longest time between a failure and its exception
_writes = count()


def dump(path: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Return this rank's last operations, their states, and where the rank is now.

    Any rank may call it at any time, from any thread; it waits for no rank. The result
    is plain data for `json`, described in the [flight record](flight-record.md).
    `allhands debug` reads the records of all ranks and says what is wrong.

    Args:
        path: a file to which the record is also written, as JSON. An existing file is
            replaced atomically, so a reader never sees half of it; links are followed.
            If the path is not a regular file, such as `/dev/stdout` or a pipe with a
            reader, the record is written into it.

    Raises:
        OSError: `path` cannot be written.

    Example:
        ```python
        dist.debug.dump(f"record_{dist.get_rank()}.json")
        ```
    """
    told = told_now(current(), "asked for")
    if path is not None:
        write(told, os.fspath(path))
    return told


def told_now(
    world: World,
    reason: str,
    error: BaseException | None = None,
    traceback: TracebackType | None = None,
    interrupted: FrameType | None = None,
    most: int | None = None,
) -> dict[str, Any]:
    """Return the record of `world`, for `reason`.

    Args:
        world: the world of this rank.
        reason: one of the reasons in docs/reference/flight-record.md.
        error: the failure, if there is one.
        traceback: the traceback of `error`; None while it is not raised yet.
        interrupted: where this thread was before it was asked.
        most: the number of operations of each group, the last ones; None means all.
            Operations that have not succeeded are always included.
    """
    frames = sys._current_frames()
    if interrupted is not None:
        frames[threading.get_ident()] = interrupted
    try:
        return _seen(world, reason, error, traceback, frames, most)
    finally:
        # It contains the frame of this function itself: a cycle would keep the locals
        # of all threads until the next collection.
        frames.clear()


def _seen(
    world: World,
    reason: str,
    error: BaseException | None,
    traceback: TracebackType | None,
    frames: Mapping[int, FrameType],
    most: int | None,
) -> dict[str, Any]:
    groups = with_parts(world.visible_groups())
    now = time.time_ns()
    entries = [told for group in groups for told in _entries(group, frames, most)]
    if error is not None and traceback is None:
        _place(entries, frames)
    entries.sort(key=lambda told: int(told["time_created_ns"]))
    if error is None:
        _take_back_failures(entries, frames, now)
    for number, told in enumerate(entries):
        told["record_id"] = told["op_id"] = number
    return {
        "schema": SCHEMA,
        "version": _VERSION,
        **_process(world),
        "time_ns": now,
        "reason": reason,
        "error": None if error is None else _error(error, traceback, groups),
        "pg_config": {group.group_name: _config(group) for group in groups},
        "pg_status": {group.group_name: _status(group, entries) for group in groups},
        "entries": entries,
        "threads": _threads(frames),
    }


def _place(entries: list[dict[str, Any]], frames: Mapping[int, FrameType]) -> None:
    """Note the place of the call of the operation that fails now in this thread."""
    here = threading.get_ident()
    failed = [
        told for told in entries if told["state"] == "failed" and told["thread"] == here
    ]
    if failed:
        last = max(failed, key=lambda told: int(told["time_created_ns"]))
        last["frames"] = _told_lines(source_lines(frames[here]))


def _take_back_failures(
    entries: list[dict[str, Any]], frames: Mapping[int, FrameType], now: int
) -> None:
    """Show a call that is about to raise as waiting, as its caller still sees it.

    According to `entries`, which are sorted, it has just failed.
    """
    by_thread = dict[int, list[dict[str, Any]]]()
    for told in entries:
        by_thread.setdefault(told["thread"], []).append(told)
    for thread, mine in by_thread.items():
        frame = frames.get(thread)
        # Later ones may have begun before it failed, as messages do.
        is_raising = _is_raising(frame)
        told = _last_failed(mine) if is_raising else mine[-1]
        ended = told["time_discovered_completed_ns"]
        # It may look for a reason for longer.
        is_fresh = ended is not None and (is_raising or now < ended + _RAISING_NS)
        is_inside = inside(frame) not in ("", dump.__name__)
        if told["state"] == "failed" and is_fresh and is_inside:
            told |= {
                "state": "started",
                "retired": False,
                "is_waited_for": True,
                "time_discovered_completed_ns": None,
                "duration_ms": None,
                "frames": _told_lines(source_lines(frame)),
            }


def _last_failed(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the operation that failed last; the last operation if none has."""
    failed = [told for told in entries if told["state"] == "failed"]
    return max(
        failed,
        key=lambda told: int(told["time_discovered_completed_ns"] or 0),
        default=entries[-1],
    )


def _is_raising(frame: FrameType | None) -> bool:
    """Return whether an error of this package is being made in `frame`, or told of."""
    called = called_frame(frame)
    while frame is not None:
        if frame.f_code.co_filename in (errors.__file__, failures.__file__):
            return True
        frame = None if frame is called else frame.f_back
    return False


def _process(world: World) -> dict[str, Any]:
    whole = world.whole
    rank = whole.rank() if whole else int(os.environ.get("RANK", "-1"))
    size = whole.size() if whole else int(os.environ.get("WORLD_SIZE", "-1"))
    host, pid = socket.gethostname(), os.getpid()
    return {"rank": rank, "world_size": size, "host": host, "pid": pid}


def _config(group: VisibleGroup) -> dict[str, str]:
    return {
        "name": group.group_name,
        "desc": group.group_desc,
        "ranks": json.dumps(list(group.global_ranks)),
    }


def _status(group: VisibleGroup, entries: list[dict[str, Any]]) -> dict[str, int]:
    mine = [
        told
        for told in entries
        if told["process_group"][0] == group.group_name and not told["is_p2p"]
    ]

    def last(*states: str) -> int:
        numbers = (t["collective_seq_id"] for t in mine if t["state"] in states)
        return max(numbers, default=-1)

    return {
        "last_enqueued_collective": last("scheduled", "started", "completed", "failed"),
        "last_started_collective": last("started", "completed", "failed"),
        "last_completed_collective": last("completed"),
    }


def _entries(
    group: VisibleGroup, frames: Mapping[int, FrameType], most: int | None
) -> list[dict[str, Any]]:
    found = group.communicator.flight_entries()
    first = 0 if most is None else len(found) - most
    return [
        _entry(group, kept, frames)
        for number, kept in enumerate(found)
        if number >= first or kept["state"] != "completed"
    ]


def _entry(
    group: VisibleGroup, kept: dict[str, Any], frames: Mapping[int, FrameType]
) -> dict[str, Any]:
    is_message, number = kept["is_message"], kept["sequence"]
    is_there = kept["state"] == "started" and kept["is_waited_for"]
    frame = frames.get(kept["thread"]) if is_there else None
    started, ended = kept["started"], kept["ended"]
    inputs, outputs = _sizes(group, kept)
    return {
        "record_id": 0,
        "op_id": 0,
        "pg_id": 0 if group.is_world else 1,
        "process_group": [group.group_name, group.group_desc],
        "collective_seq_id": 0 if is_message else number,
        "p2p_seq_id": number if is_message else 0,
        "profiling_name": _profiling_name(group, kept),
        "time_created_ns": kept["issued"],
        "time_discovered_started_ns": started,
        "time_discovered_completed_ns": ended,
        "duration_ms": None if not (started and ended) else (ended - started) / 1e6,
        "input_sizes": inputs,
        "input_dtypes": [kept["dtype"]] * len(inputs),
        "output_sizes": outputs,
        "output_dtypes": [kept["dtype"]] * len(outputs),
        "state": kept["state"],
        "timeout_ms": int(group.timeout.total_seconds() * 1000),
        "is_p2p": is_message,
        "retired": kept["state"] in ("completed", "failed"),
        "frames": _told_lines(source_lines(frame)),
        "op": kept["op"],
        "dtype": kept["dtype"],
        "count": kept["count"],
        "reduce_op": kept["reduce_op"] if kept["op"].startswith(REDUCTIONS) else "",
        "partner": kept["partner"],
        "tag": kept["tag"],
        "async_op": kept["async_op"],
        "is_waited_for": kept["is_waited_for"],
        "thread": kept["thread"],
    }


def _profiling_name(group: VisibleGroup, kept: dict[str, Any]) -> str:
    op, peer, here = kept["op"], kept["partner"], group.rank()
    if not kept["is_message"]:
        return f"allhands:{op}"
    return f"allhands:{op} {here}{'->' if op == 'send' else '<-'}{peer}"


def _sizes(
    group: VisibleGroup, kept: dict[str, Any]
) -> tuple[list[list[int]], list[list[int]]]:
    """Return the sizes of inputs and outputs, as far as all ranks agree on them."""
    one, many = [[kept["count"]]], [[kept["count"]]] * group.size()
    op, is_root = kept["op"], kept["partner"] == group.rank()
    if op in ("all_gather", "gather"):
        return one, many if op == "all_gather" or is_root else [[]]
    if op in ("reduce_scatter", "scatter"):
        return many if op == "reduce_scatter" or is_root else [[]], one
    if op == "all_to_all":
        return many, many
    return one, one


def _threads(frames: Mapping[int, FrameType]) -> list[dict[str, Any]]:
    main = threading.main_thread()
    found = [
        (thread, frames.get(thread.ident or 0)) for thread in threading.enumerate()
    ]
    return [
        {
            "name": thread.name,
            "is_main": thread is main,
            "inside": inside(frame),
            "frames": _told_lines(source_lines(frame)),
        }
        for thread, frame in found
        if frame is not None
    ]


def _told_lines(found: list[SourceLine]) -> list[dict[str, Any]]:
    return [place._asdict() for place in found]


def _error(
    error: BaseException, traceback: TracebackType | None, groups: list[VisibleGroup]
) -> dict[str, Any]:
    text = str(error)
    named = _GROUP.search(text) if isinstance(error, DistError) else None
    group = next((g for g in groups if named and g.group_name == named[1]), None)
    ranks = list(getattr(error, "ranks", [])) if group is not None else []
    raised = (
        source_lines_of_traceback(traceback)
        if traceback
        else source_lines(sys._getframe(1))
    )
    kind = type(error)
    is_plain = kind.__module__ in ("builtins", "allhands.errors")
    return {
        "type": kind.__name__ if is_plain else f"{kind.__module__}.{kind.__name__}",
        "message": text,
        "ranks": [group.global_rank(rank) for rank in ranks] if group else [],
        "group": group.group_name if group else "",
        "frames": _told_lines(raised),
    }


def write(told: dict[str, Any], path: str) -> None:
    """Write `told` to `path` atomically, or into a path that is not a regular file.

    Raises:
        OSError: `path` cannot be written; no partial file is left.
    """
    text = json.dumps(told)
    try:
        target = os.path.realpath(path)
        if _is_replaceable(path, target):
            _replace(target, text)
        else:
            with open(path, "w", encoding="utf-8", opener=_open_at_once) as file:
                os.set_blocking(file.fileno(), True)  # for the reader
                file.write(text)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


def _is_replaceable(path: str, target: str) -> bool:
    """Return whether `path` does not exist, or is a regular file named `target`."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return True
    # /dev/stdout may lead to a file without a name.
    is_named = os.path.exists(target) and os.path.samestat(found, os.stat(target))
    return stat.S_ISREG(found.st_mode) and is_named


def _replace(target: str, text: str) -> None:
    # Unique: a signal or a thread may write to the same path meanwhile.
    part = f"{target}.{os.getpid()}.{next(_writes)}.part"
    try:
        with open(part, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(part, target)
    except BaseException:
        with suppress(OSError):
            os.remove(part)
        raise


def _open_at_once(path: str, flags: int) -> int:
    """Open a pipe without a reader: this raises an error instead of waiting."""
    return open_at_once(path, (flags | os.O_NOCTTY) & ~os.O_CREAT)
