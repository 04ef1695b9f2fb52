"""dump: what this rank's flight recorder has, with where its threads are."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from types import FrameType, TracebackType
from typing import Any

from allhands.debug.dumps import SCHEMA
from allhands.debug.frames import Place, inside, places, places_of_traceback
from allhands.errors import DistError
from allhands.groups.process_group import ProcessGroup
from allhands.groups.world import World, current

__all__ = ["dump", "told_now", "write"]

_VERSION = "2.10"  # of torch's record, whose fields these are
_GROUP = re.compile(r"(?:on|of) group '([^']*)'")
_writes = count()
_REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter", "scan", "exscan")


def dump(path: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """What this rank's last operations were, how they stand, and where it is now.

    Of any rank, at any time, from any thread; it waits for nobody. The result is plain
    data for `json`, described in the [flight record](flight-record.md);
    `allhands debug` reads those of all ranks and says what is wrong.

    Args:
        path: a file that it is written to as well, as JSON. Where one is, it is
            replaced at once, so a reader never sees half of it.

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
) -> dict[str, Any]:
    """The record of `world`, for `reason`.

    Args:
        world: this rank's.
        reason: as docs/reference/flight-record.md lists them.
        error: what goes wrong.
        traceback: of `error`; None while it is not raised yet.
        interrupted: where this thread was before it was made to ask.
    """
    frames = sys._current_frames()
    if interrupted is not None:
        frames[threading.get_ident()] = interrupted
    try:
        return _seen(world, reason, error, traceback, frames)
    finally:
        # It has the frame of this function itself: a cycle would keep the locals of
        # all threads until the next collection.
        frames.clear()


def _seen(
    world: World,
    reason: str,
    error: BaseException | None,
    traceback: TracebackType | None,
    frames: Mapping[int, FrameType],
) -> dict[str, Any]:
    groups = list(world.groups.values())
    now = time.time_ns()
    entries = [told for group in groups for told in _entries(group, frames)]
    if error is not None and traceback is None:
        _place(entries, frames)
    entries.sort(key=lambda told: int(told["time_created_ns"]))
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
    """Say where the operation is called that fails now, in this thread."""
    here = threading.get_ident()
    failed = [
        told for told in entries if told["state"] == "failed" and told["thread"] == here
    ]
    if failed:
        last = max(failed, key=lambda told: int(told["time_created_ns"]))
        last["frames"] = _told_places(places(frames[here]))


def _process(world: World) -> dict[str, Any]:
    default = world.default
    rank = default.rank() if default else int(os.environ.get("RANK", "-1"))
    size = default.size() if default else int(os.environ.get("WORLD_SIZE", "-1"))
    host, pid = socket.gethostname(), os.getpid()
    return {"rank": rank, "world_size": size, "host": host, "pid": pid}


def _config(group: ProcessGroup) -> dict[str, str]:
    return {
        "name": group.group_name,
        "desc": group.group_desc,
        "ranks": json.dumps(list(group.global_ranks)),
    }


def _status(group: ProcessGroup, entries: list[dict[str, Any]]) -> dict[str, int]:
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
    group: ProcessGroup, frames: Mapping[int, FrameType]
) -> list[dict[str, Any]]:
    return [_entry(group, kept, frames) for kept in group.communicator.flight_entries()]


def _entry(
    group: ProcessGroup, kept: dict[str, Any], frames: Mapping[int, FrameType]
) -> dict[str, Any]:
    is_message, number = kept["is_message"], kept["sequence"]
    is_there = kept["state"] == "started" and not kept["async_op"]
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
        "frames": _told_places(places(frame)),
        "op": kept["op"],
        "dtype": kept["dtype"],
        "count": kept["count"],
        "reduce_op": kept["reduce_op"] if kept["op"].startswith(_REDUCTIONS) else "",
        "partner": kept["partner"],
        "tag": kept["tag"],
        "async_op": kept["async_op"],
        "thread": kept["thread"],
    }


def _profiling_name(group: ProcessGroup, kept: dict[str, Any]) -> str:
    op, peer, here = kept["op"], kept["partner"], group.rank()
    if not kept["is_message"]:
        return f"allhands:{op}"
    return f"allhands:{op} {here}{'->' if op == 'send' else '<-'}{peer}"


def _sizes(
    group: ProcessGroup, kept: dict[str, Any]
) -> tuple[list[list[int]], list[list[int]]]:
    """Sizes of inputs and outputs, as far as all ranks agree on them."""
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
            "frames": _told_places(places(frame)),
        }
        for thread, frame in found
        if frame is not None
    ]


def _told_places(found: list[Place]) -> list[dict[str, Any]]:
    return [place._asdict() for place in found]


def _error(
    error: BaseException, traceback: TracebackType | None, groups: list[ProcessGroup]
) -> dict[str, Any]:
    text = str(error)
    named = _GROUP.search(text) if isinstance(error, DistError) else None
    group = next((g for g in groups if named and g.group_name == named[1]), None)
    ranks = list(getattr(error, "ranks", [])) if group is not None else []
    raised = places_of_traceback(traceback) if traceback else places(sys._getframe(1))
    kind = type(error)
    is_plain = kind.__module__ in ("builtins", "allhands.errors")
    return {
        "type": kind.__name__ if is_plain else f"{kind.__module__}.{kind.__name__}",
        "message": text,
        "ranks": [group.global_rank(rank) for rank in ranks] if group else [],
        "group": group.group_name if group else "",
        "frames": _told_places(raised),
    }


def write(told: dict[str, Any], path: str) -> None:
    """Put `told` at `path`, at once.

    Raises:
        OSError: it cannot be written; nothing is left of it.
    """
    # No two share one: a signal or a thread may write to the same path meanwhile.
    part = f"{path}.{os.getpid()}.{next(_writes)}.part"
    text = json.dumps(told)
    try:
        with open(part, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            os.remove(part)
        raise
