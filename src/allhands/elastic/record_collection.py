"""The flight records that the ranks of one attempt write, collected by the launcher."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain
from typing import TypeAlias

from allhands.elastic.record_memory import answers, read_regular
from allhands.elastic.records import (
    HALTED,
    NO_ANSWER,
    is_halted,
    limit_of,
    write_records,
)
from allhands.elastic.worker import Worker

__all__ = ["Look", "Records", "folder_within"]

Look: TypeAlias = Callable[
    [Mapping[int, str], Mapping[int, int], float], dict[int, str]
]
"""Adds to reasons, by rank, what is seen of processes, by rank, within some seconds."""
_LIMIT_S = 1.0


@contextmanager
def folder_within(parent: str) -> Iterator[str]:
    """Yields a new folder of this run alone, removed in the end; no parent: "".

    Raises:
        ValueError: none can be made there.
    """
    if not parent:
        yield ""
        return
    try:
        os.makedirs(parent, exist_ok=True)
        folder = tempfile.mkdtemp(dir=os.path.abspath(parent), prefix=".run_")
    except OSError as error:
        raise ValueError(
            f"--dumps is {parent!r}: no folder can be made there: {error.strerror}; "
            "want a folder that can be written, or a new one"
        ) from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Records:
    """What the ranks of this node leave in `folder`, for `path`. One thread."""

    def __init__(self, folder: str, path: str, look: Look | None = None) -> None:
        """Make them; without `look` nothing more is told of silent ranks."""
        self.folder, self.path = folder, path
        self._look: Look = look or (lambda reasons, pids, limit: dict(reasons))
        self._before: dict[str, int] = {}
        self._asked: list[Worker] = []

    def ask(self, workers: Iterable[Worker]) -> None:
        """Have those of `workers` that answer write what they are doing now."""
        for worker in workers:
            if answers(worker.pid):
                self._before[self._path(worker)] = self._written_at(worker)
                self._asked.append(worker)
                worker.send(signal.SIGUSR2, to_group=False)

    @property
    def limit(self) -> float:
        """Seconds that those who were asked have to answer."""
        return limit_of(len(self._asked), _LIMIT_S)

    @property
    def silent(self) -> dict[int, str]:
        """Why those that still run have not answered, and what is seen of them."""
        reasons, pids = dict[int, str](), dict[int, int]()
        for worker in self._asked:
            if worker.exit_code is None and self._lacks(worker):
                halted = is_halted(worker.pid)
                reasons[worker.rank] = HALTED if halted else NO_ANSWER
                pids[worker.rank] = worker.pid
        return self._look(reasons, pids, _LIMIT_S)

    def _lacks(self, worker: Worker) -> bool:
        return self._written_at(worker) == self._before[self._path(worker)]

    @property
    def are_complete(self) -> bool:
        """Whether all that were asked have answered, or ended."""
        return all(
            worker.exit_code is not None or not self._lacks(worker)
            for worker in self._asked
        )

    def gather(self, endings: Mapping[int, str]) -> str:
        """Write all records, and how ranks ended, into one file.

        Returns the file's path; empty: no rank left a record, and there is no file.

        Raises:
            OSError: it cannot be written; nothing is left of it.
        """
        found = filter(None, map(self._read, self._names()))
        first = next(found, "")
        if not first:
            return ""
        part = f"{self.folder}.part"  # goes with the folder around it
        write_records(part, chain([first], found), endings)
        os.replace(part, self.path)
        return self.path

    def _names(self) -> list[str]:
        try:
            return sorted(os.listdir(self.folder))
        except OSError:
            return []

    def _read(self, name: str) -> str:
        """The JSON object that a rank wrote; empty: nothing that can be read."""
        if not (name.startswith("rank_") and name.endswith(".json")):
            return ""
        # A program of the ranks can write there, too, whatever it likes.
        with suppress(OSError, ValueError, RecursionError):
            text = read_regular(os.path.join(self.folder, name))
            if isinstance(json.loads(text), dict):
                return text
        return ""

    def _path(self, worker: Worker) -> str:
        return os.path.join(self.folder, f"rank_{worker.rank}.json")

    def _written_at(self, worker: Worker) -> int:
        try:
            return os.stat(self._path(worker)).st_mtime_ns
        except OSError:
            return 0
