"""How ranks that a program started have failed, as torch's programs know it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from allhands.elastic.error_handler import ErrorHandler, get_error_handler
from allhands.elastic.process_failure import NOT_AVAILABLE, ProcessFailure
from allhands.errors import DistError

__all__ = [
    "ChildFailedError",
    "ErrorHandler",
    "ProcessFailure",
    "get_error_handler",
    "record",
]

_P = ParamSpec("_P")
_R = TypeVar("_R")


class ChildFailedError(DistError):
    """Ranks that this process started have failed.

    Its text is what `allhands run` says of such an end: which rank failed first, with
    what exception, and at which line of the program.

    Attributes:
        name: the function or program that the ranks ran.
        failures: global rank to `ProcessFailure`. The launcher puts the cause first,
            and leaves out ranks that it stopped because of it.
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
        super().__init__("\n".join([f"{name} FAILED", *self._told()]))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, self.failures, self._lines)

    def get_first_failure(self) -> tuple[int, ProcessFailure]:
        """Return the rank that failed first, and how.

        Where the launcher has found the cause, it is that one.
        """
        found = iter(self.failures.items())
        return next(found) if self._lines else min(found, key=_ended_at)

    def format_msg(self, boarder_delim: str = "=", section_delim: str = "-") -> str:
        """Return the error's text between lines of these characters."""
        title, lines = f"{self.name} FAILED", self._told()
        width = min(60, max(map(len, [title, *lines])))
        border, section = boarder_delim * width, section_delim * width
        return "\n".join(["", border, title, section, *lines, border])

    def _told(self) -> list[str]:
        return self._lines or [
            f"rank {rank} (local rank {failure.local_rank}, pid {failure.pid}): "
            f"{_headline(failure.message)}"
            for rank, failure in self.failures.items()
        ]


def _ended_at(item: tuple[int, ProcessFailure]) -> int:
    return item[1].timestamp


def _headline(message: str | Mapping[str, Any]) -> str:
    return message if isinstance(message, str) else str(message["message"])


def record(
    fn: Callable[_P, _R], error_handler: ErrorHandler | None = None
) -> Callable[_P, _R | None]:
    """Have exceptions of `fn` written to the file that `TORCHELASTIC_ERROR_FILE` names.

    torchrun sets the variable for each of its ranks, and schedulers set it for a
    launcher. `allhands run` reads exceptions from stderr, and its ranks have no such
    variable: there the decorator writes nothing. The exception goes on to the caller;
    but of `sys.exit(0)` the function returns None.

    Args:
        fn: the function, usually the program's main one.
        error_handler: what to do with an exception, in place of `get_error_handler()`.

    ```python
    from allhands.elastic.multiprocessing.errors import record


    @record
    def main():
        train()
    ```
    """
    handler = error_handler or get_error_handler()

    @wraps(fn)
    def recorded(*args: _P.args, **kwargs: _P.kwargs) -> _R | None:
        handler.initialize()
        try:
            return fn(*args, **kwargs)
        except SystemExit as end:
            if end.code != 0:
                raise
            return None
        except ChildFailedError as error:
            _, failure = error.get_first_failure()
            # Of its own ranks the launcher has written what ended them.
            if failure.error_file != NOT_AVAILABLE:
                handler.dump_error_file(failure.error_file, failure.exitcode)
            raise
        except Exception as error:
            handler.record_exception(error)
            raise

    return recorded
