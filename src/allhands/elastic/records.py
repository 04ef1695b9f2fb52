"""The flight records of one attempt: where ranks write them, and all in one file.

A rank that answers to SIGUSR2 with its record says so by a file of its own in the
folder (see `allhands.debug.record`), so that no other program is sent that signal. It
may have become another program since: the kernel knows whether it still has a handler.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from allhands.elastic.worker import Worker

__all__ = ["ENDED_WELL", "Records", "folder_within"]

ENDED_WELL = "ended with exit code 0"
"""How a rank ended that did what it was to do."""


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

    def __init__(self, folder: str, path: str) -> None:
        self.folder, self.path = folder, path
        self._before: dict[str, int] = {}
        self._asked: list[Worker] = []

    def ask(self, workers: Iterable[Worker]) -> None:
        """Have those of `workers` that answer write what they are doing now."""
        for worker in workers:
            said_so = os.path.join(self.folder, f".answers_{worker.pid}")
            if os.path.exists(said_so) and _has_handler(worker.pid, signal.SIGUSR2):
                self._before[self._path(worker)] = self._written_at(worker)
                self._asked.append(worker)
                worker.send(signal.SIGUSR2, to_group=False)

    @property
    def halted(self) -> dict[int, str]:
        """Those that do not answer because somebody has stopped them."""
        return {
            worker.rank: "stopped by SIGSTOP, and not continued"
            for worker in self._asked
            if self._lacks(worker) and _is_halted(worker.pid)
        }

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
        """
        found = [record for name in self._names() if (record := self._read(name))]
        if not found:
            return ""
        with open(self.path, "w", encoding="utf-8") as file:
            json.dump({"ranks": found, "endings": endings}, file)
        return self.path

    def _names(self) -> list[str]:
        try:
            return sorted(os.listdir(self.folder))
        except OSError:
            return []

    def _read(self, name: str) -> Any:
        """What a rank wrote; None: nothing that can be read."""
        if not (name.startswith("rank_") and name.endswith(".json")):
            return None
        path = os.path.join(self.folder, name)
        with suppress(OSError, ValueError), open(path, encoding="utf-8") as file:
            return json.load(file)
        return None

    def _path(self, worker: Worker) -> str:
        return os.path.join(self.folder, f"rank_{worker.rank}.json")

    def _written_at(self, worker: Worker) -> int:
        try:
            return os.stat(self._path(worker)).st_mtime_ns
        except OSError:
            return 0


def _is_halted(pid: int) -> bool:
    """Whether the kernel has the process stopped."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] in ("T", "t")
    except OSError:
        return False


def _has_handler(pid: int, number: int) -> bool:
    """Whether the process handles that signal, which would else end it."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            caught = next((line for line in file if line.startswith("SigCgt:")), ":0")
    except OSError:
        return False
    return bool(int(caught.partition(":")[2], 16) >> (number - 1) & 1)
