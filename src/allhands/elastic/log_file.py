"""LogFile: a file for what ranks write, which may become full while they run."""

from __future__ import annotations

import os
from collections.abc import Callable

__all__ = ["LogFile"]


class LogFile:
    """A file to which output is appended; what an earlier run wrote is kept above."""

    def __init__(self, path: str, say: Callable[[str], None]) -> None:
        """Open the file; `say` takes a line for people.

        Raises:
            OSError: it cannot be opened.
        """
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self.path = path
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115
        self.start = self._file.tell()
        self._say = say
        self._is_told = False

    def feed(self, data: bytes) -> None:
        """Append `data`, or what there is room for.

        A job does not end for want of a log: a line is said the first time.
        """
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            self._tell(error)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._file.fileno()

    def close(self) -> None:
        """Close the file."""
        try:
            self._file.close()
        except OSError as error:  # a file on another host may become full only now
            self._tell(error)

    def _tell(self, error: OSError) -> None:
        if not self._is_told:
            self._is_told = True
            self._say(
                f"allhands run: {self.path} takes no more: {error.strerror}; the job "
                "continues, and the file lacks what comes while this lasts\n"
            )
