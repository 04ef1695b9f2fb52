"""Answers: the contents of the debug page, by path."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from allhands.debug.ended_collectives import clocks_of
from allhands.debug.job_record import JobRecord
from allhands.debug.page.facts import facts_of, stats_of
from allhands.debug.page.job_view import JobView
from allhands.debug.prometheus import prometheus_of_groups
from allhands.debug.trace import trace
from allhands.elastic.records import lines_of

__all__ = ["Answer", "Answers"]

T = TypeVar("T")
_FRESH_S = 1.0  # an answer of the ranks serves all requests within this time
_FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}


class Answer(NamedTuple):
    """The content of a response."""

    kind: str
    """The media type."""
    body: bytes
    file: str = ""
    """The file name for saving it; empty if it is to be shown."""

    @classmethod
    def of_text(cls, text: str) -> Answer:
        """Return an answer with a line of text."""
        body = f"{text}\n".encode(errors="replace")
        return cls("text/plain; charset=utf-8", body)

    @classmethod
    def of_data(cls, told: Any, file: str = "") -> Answer:
        """Return an answer with `told` as JSON."""
        return cls("application/json", json.dumps(told).encode(), file)


class _Shared(Generic[T]):
    """The result of `find` within the last second, shared by all requests."""

    def __init__(self, find: Callable[[], T]) -> None:
        self._find = find
        self._lock = threading.Lock()
        self._found: tuple[float, T] | None = None

    def get(self) -> T:
        with self._lock:
            if self._found is None or self._is_old(self._found):
                self._found = None
                found = self._find()
                self._found = time.monotonic(), found
            return self._found[1]

    def tidy(self) -> bool:
        """Drop an old result; return whether one is left. Never waits."""
        if not self._lock.acquire(blocking=False):
            return True  # a result is being found
        try:
            if self._found is not None and self._is_old(self._found):
                self._found = None
            return self._found is not None
        finally:
            self._lock.release()

    def _is_old(self, found: tuple[float, T]) -> bool:
        return time.monotonic() > found[0] + _FRESH_S


class Answers:
    """See the module; for any threads."""

    def __init__(self, view: JobView) -> None:
        self._view = view
        self._record = _Shared(view.record)
        self._rows = _Shared(view.rows)
        self._paths: Mapping[str, Callable[[], Answer]] = {
            "/live": self._live,
            "/job": self._job,
            "/record": self._whole_record,
            "/trace": self._trace,
            "/metrics": self._metrics,
        }

    def tidy(self) -> bool:
        """Drop old results; return whether some are left."""
        return any([self._record.tidy(), self._rows.tidy()])

    def open_to_all(self, path: str) -> Answer | None:
        """Return the answer at a path that is the same for every job; None if none."""
        if path not in _FILES:
            return None
        name, kind = _FILES[path]
        with open(os.path.join(os.path.dirname(__file__), name), "rb") as file:
            return Answer(kind, file.read())

    def to_the_trusted(self, path: str) -> Answer | None:
        """Return the answer at a path of this job; None if there is none."""
        find = self._paths.get(path)
        return None if find is None else find()

    def _live(self) -> Answer:
        return Answer.of_data({"ranks": [row.as_json() for row in self._rows.get()]})

    def _job(self) -> Answer:
        return Answer.of_data(facts_of(self._view, self._record.get()))

    def _whole_record(self) -> Answer:
        job = self._record.get()
        records = (json.dumps(dump.raw) for dump in job.dumps)
        text = "".join(lines_of(records, job.endings))
        return Answer("application/json", text.encode(), "allhands_record.json")

    def _trace(self) -> Answer:
        job: JobRecord = self._record.get()
        told = trace(job.dumps, job.endings, clocks_of(job.dumps))
        return Answer.of_data(told, "allhands_trace.json")

    def _metrics(self) -> Answer:
        text = prometheus_of_groups(stats_of(self._record.get()))
        return Answer("text/plain; version=0.0.4; charset=utf-8", text.encode())
