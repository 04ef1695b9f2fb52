"""One rank that failed, as torch's programs read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from allhands.elastic.error_file import error_data
from allhands.elastic.failure import Failure, signal_name
from allhands.elastic.report import headline

__all__ = ["ProcessFailure", "process_failure"]

_NOT_AVAILABLE = "<N/A>"


@dataclass
class ProcessFailure:
    """One rank that did not end well."""

    local_rank: int
    pid: int
    exitcode: int
    """As `subprocess` has it: negative is the signal that ended it."""
    error_file: str
    """`<N/A>`: the launcher reads what ended a rank from its stderr."""
    error_file_data: Mapping[str, Any] = field(default_factory=dict)
    """What `TORCHELASTIC_ERROR_FILE` has of the first failure, in torchrun's form."""
    message: str | Mapping[str, Any] = ""
    """Of an exception a mapping: `message` has its type and text, and `py_callstack` in
    `extraInfo` the end of the rank's stderr. Else a line of text."""
    timestamp: int = 0
    """When the rank ended, in seconds since the epoch."""

    def signal_name(self) -> str:
        """Return the name of the signal that ended the rank, or `<N/A>`."""
        return signal_name(-self.exitcode) if self.exitcode < 0 else _NOT_AVAILABLE

    def timestamp_isoformat(self) -> str:
        """Return when the rank ended, such as `2026-01-31_23:59:59`."""
        return datetime.fromtimestamp(self.timestamp).isoformat(sep="_")


def process_failure(failure: Failure) -> ProcessFailure:
    """Return what the launcher knows of a rank that failed, in torch's form."""
    data = error_data(failure)
    if failure.exit_code < 0:
        name = signal_name(-failure.exit_code)
        message = f"Signal {-failure.exit_code} ({name}) received by PID {failure.pid}"
    else:
        message = headline(failure)
    return ProcessFailure(
        local_rank=failure.local_rank,
        pid=failure.pid,
        exitcode=failure.exit_code,
        error_file=_NOT_AVAILABLE,
        error_file_data=data,
        message=data["message"] if failure.is_by_exception else message,
        timestamp=int(failure.ended_at),
    )
