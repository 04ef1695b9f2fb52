"""One rank that failed, as torch's programs read it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from allhands.elastic.error_file import error_data
from allhands.elastic.failure import Failure
from allhands.elastic.report import headline

__all__ = ["NOT_AVAILABLE", "ProcessFailure", "process_failure"]

NOT_AVAILABLE = "<N/A>"
"""In the place of a file or a name that there is not."""


@dataclass
class ProcessFailure:
    """One rank that did not end well.

    If `error_file` exists, it is read. Else the time of the failure is that of now.

    Raises:
        KeyError, ValueError: the file is not one of `ErrorHandler`'s.
    """

    local_rank: int
    pid: int
    exitcode: int
    """As `subprocess` has it: negative is the signal that ended it."""
    error_file: str
    """`<N/A>` if there is none. Of ranks of this package's launcher there never is: the
    launcher reads what ended a rank from its stderr."""
    error_file_data: Mapping[str, Any] = field(init=False)
    """What the file has, or would have."""
    message: str | Mapping[str, Any] = field(init=False)
    """Of an exception a mapping: `message` has its type and text, and `py_callstack` in
    `extraInfo` the traceback or the end of the rank's stderr. Else a line of text."""
    timestamp: int = field(init=False)
    """When the rank ended, in seconds since the epoch."""

    def __post_init__(self) -> None:
        if os.path.isfile(self.error_file):
            with open(self.error_file, encoding="utf-8") as file:
                self.error_file_data = json.load(file)
            self.message, self.timestamp = _content(self.error_file_data)
        else:
            self.error_file, self.error_file_data = NOT_AVAILABLE, {"message": "<NONE>"}
            self.message, self.timestamp = "", int(time.time())
        self.message = self.message or self._ending()

    def signal_name(self) -> str:
        """Return the name of the signal that ended the rank, or `<N/A>`."""
        try:
            return signal.Signals(-self.exitcode).name
        except ValueError:
            return NOT_AVAILABLE

    def timestamp_isoformat(self) -> str:
        """Return when the rank ended, such as `2026-01-31_23:59:59`."""
        return datetime.fromtimestamp(self.timestamp).isoformat(sep="_")

    def _ending(self) -> str:
        if self.exitcode >= 0:
            return f"exit code {self.exitcode}"
        number, name = -self.exitcode, self.signal_name()
        return f"Signal {number} ({name}) received by PID {self.pid}"


def process_failure(failure: Failure) -> ProcessFailure:
    """Return what the launcher knows of a rank that failed, in torch's form."""
    told = ProcessFailure(
        failure.local_rank, failure.pid, failure.exit_code, NOT_AVAILABLE
    )
    told.error_file_data = error_data(failure)
    told.timestamp = int(failure.ended_at)
    if failure.is_by_exception:
        told.message = told.error_file_data["message"]
    elif failure.exit_code >= 0:
        told.message = headline(failure)
    return told


def _content(data: Mapping[str, Any]) -> tuple[str | Mapping[str, Any], int]:
    """Return message and time of what an error file has."""
    message = data["message"]
    if isinstance(message, str):
        return message, int(data.get("timestamp", 0))
    return message, int(message["extraInfo"]["timestamp"])
