"""dump: what this rank's flight recorder has, with where its threads are.

With a folder in ALLHANDS_DUMPS a rank also writes it there by itself: when an operation
of its fails, when an exception ends the program, and on SIGUSR2.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from types import FrameType, TracebackType
from typing import Any

from allhands import settings
from allhands.backends import failures
from allhands.debug.dumps import SCHEMA
from allhands.debug.frames import Place, inside, places, places_of_traceback
from allhands.errors import DistBackendError, DistError
from allhands.groups.process_group import ProcessGroup
from allhands.groups.world import World, current

__all__ = ["dump"]

_VERSION = "2.10"  # of torch's record, whose fields these are
_GROUP = re.compile(r"(?:on|of) group '([^']*)'")
_LEAST_PAUSE = 1.0  # seconds between two that are written by themselves
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
    told = _told(current(), "asked for")
    if path is not None:
        _write(told, os.fspath(path))
    return told


def _told(
    world: World,
    reason: str,
    error: BaseException | None = None,
    traceback: TracebackType | None = None,
    interrupted: FrameType | None = None,
) -> dict[str, Any]:
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


def _causes(error: BaseException | None) -> list[BaseException]:
    """`error`, and those of which it came."""
    chain: list[BaseException] = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    return chain


def _write(told: dict[str, Any], path: str) -> None:
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


class _ByItself:
    """Writes the record into the folder of ALLHANDS_DUMPS."""

    def __init__(self) -> None:
        self._last_failure: weakref.ref[BaseException] | None = None
        self._last_time = float("-inf")

    def on_failure(self, error: BaseException, traceback: TracebackType | None) -> None:
        """Write what was when `error` came; of many in a row the first."""
        folder = settings.dumps.get()
        is_of_a_group = isinstance(error, DistBackendError)
        if not folder or (traceback is None and not is_of_a_group):
            return
        now = time.monotonic()
        last = self._last_failure() if self._last_failure is not None else None
        is_told = last is not None and any(last is cause for cause in _causes(error))
        is_soon = traceback is None and now < self._last_time + _LEAST_PAUSE
        if is_told or is_soon:
            return
        # Its traceback has the arrays of all calls on the way; only those of Python's
        # own classes cannot be held weakly, and of these one ends the program.
        self._last_failure = weakref.ref(error) if is_of_a_group else None
        self._last_time = now
        reason = "failure" if traceback is None else "exception"
        self._write(folder, _told(current(), reason, error, traceback))

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Write what is now."""
        folder = settings.dumps.get()
        if folder:
            # Whatever is wrong, the program that was interrupted goes on.
            with suppress(Exception):
                self._write(folder, _told(current(), "signal", interrupted=frame))

    @staticmethod
    def _write(folder: str, told: dict[str, Any]) -> None:
        os.makedirs(folder, exist_ok=True)
        _write(told, os.path.join(folder, f"rank_{told['rank']}.json"))


def _listen() -> None:
    by_itself = _ByItself()
    failures.set_listener(by_itself.on_failure)
    is_free = signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL
    # The launcher itself has the setting, too, where the user has set it.
    if settings.dumps.get() and is_free and "RANK" in os.environ:
        with suppress(ValueError):  # imported by another thread than the main one
            signal.signal(signal.SIGUSR2, by_itself.on_signal)
            _say_so(settings.dumps.get())


def _say_so(folder: str) -> None:
    """Leave a file by which the launcher knows that this process answers SIGUSR2."""
    with suppress(OSError):  # then it is not asked
        os.makedirs(folder, exist_ok=True)
        open(os.path.join(folder, f".answers_{os.getpid()}"), "w").close()


_listen()
