"""How ranks that a program started have failed, as torch's programs know it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from allhands.elastic.error_file import ERROR_FILE, write_exception
from allhands.elastic.process_failure import ProcessFailure
from allhands.errors import DistError

__all__ = ["ChildFailedError", "ProcessFailure", "record"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


class ChildFailedError(DistError):
    """Ranks that this process started have failed.

    Its text is what `allhands run` says of such an end: which rank failed first, with
    what exception, and at which line of the program.

    Attributes:
        name: the function or program that the ranks ran.
        failures: global rank to `ProcessFailure`; the cause comes first. Ranks that the
            launcher stopped because of it are not there.
    """

    def __init__(
        self,
        name: str,
        failures: Mapping[int, ProcessFailure],
        lines: Sequence[str] = (),
    ) -> None:
        """Make one.

        Args:
            name: what the ranks ran.
            failures: at least one, by global rank.
            lines: what to say of them; by default a line for each.

        Raises:
            ValueError: there is no failure.
        """
        if not failures:
            raise ValueError(f"ChildFailedError of {name!r}: want at least one failure")
        self.name, self.failures = name, dict(failures)
        self._lines = list(lines)
        super().__init__(self.format_msg())

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, self.failures, self._lines)

    def get_first_failure(self) -> tuple[int, ProcessFailure]:
        """Return the rank that failed first, and how."""
        return next(iter(self.failures.items()))

    def format_msg(self) -> str:
        """Return the error's text."""
        return "\n".join([f"{self.name} failed", *(self._lines or self._own_lines())])

    def _own_lines(self) -> list[str]:
        return [
            f"rank {rank} (local rank {failure.local_rank}, pid {failure.pid}): "
            f"{_headline(failure.message)}"
            for rank, failure in self.failures.items()
        ]


def _headline(message: str | Mapping[str, Any]) -> str:
    return message if isinstance(message, str) else str(message["message"])


def record(fn: Callable[_P, _R]) -> Callable[_P, _R]:
    """Have exceptions of `fn` written to the file that `TORCHELASTIC_ERROR_FILE` names.

    torchrun sets the variable for each of its ranks, and schedulers set it for a
    launcher. `allhands run` reads exceptions from stderr, and its ranks have no such
    variable: there the decorator changes nothing. The exception goes on to the caller.

    ```python
    from allhands.elastic.multiprocessing.errors import record


    @record
    def main():
        train()
    ```
    """

    @wraps(fn)
    def recorded(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return fn(*args, **kwargs)
        except ChildFailedError:
            raise  # whoever started the ranks has written what ended them
        except Exception as error:
            path = os.environ.get(ERROR_FILE)
            if path:
                write_exception(path, error, time.time())
            raise

    return recorded
