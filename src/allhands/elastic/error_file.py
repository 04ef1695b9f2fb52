"""The file in which a scheduler looks for what ended a job.

Who starts the launcher names it by `TORCHELASTIC_ERROR_FILE`; torchrun and torch's
`record` write the same form. `allhands run` alone writes it, so it has the failure that
came first, and the ranks need no decorator. They do not know the path: a rank that
failed because of another one would write over what that wrote.
"""

from __future__ import annotations

import json
import traceback
from typing import Any

from allhands.elastic.failure import Failure, shell_code
from allhands.elastic.report import headline

__all__ = ["ERROR_FILE", "error_data", "write_error_file", "write_exception"]

ERROR_FILE = "TORCHELASTIC_ERROR_FILE"


def error_data(failure: Failure) -> dict[str, Any]:
    """Return how a rank ended, in the file's form."""
    text, code = headline(failure), shell_code(failure.exit_code)
    return _data(text, failure.stderr, failure.ended_at, errorCode=code)


def write_error_file(path: str, first: Failure) -> None:
    """Write how the rank that failed `first` ended.

    Raises:
        OSError: it cannot be written.
    """
    _write(path, error_data(first))


def write_exception(path: str, error: BaseException, now: float) -> None:
    """Write the exception that ends this process.

    Args:
        path: the file.
        error: the exception.
        now: the time, in seconds since the epoch.

    Raises:
        OSError: it cannot be written.
    """
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    text = f"{type(error).__name__}: {error}"
    _write(path, _data(text, "".join(lines), now))


def _data(text: str, stack: str, time: float, **more: Any) -> dict[str, Any]:
    info = {"py_callstack": stack, "timestamp": str(int(time))}
    return {"message": {"message": text, "extraInfo": info, **more}}


def _write(path: str, data: dict[str, Any]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        json.dump(data, file)
