"""A file with those lines of several ranks that have one of some words."""

from __future__ import annotations

from collections.abc import Sequence

from allhands.elastic.log_file import LogFile

__all__ = ["FilteredLog", "parse_words"]

# A line longer than this is looked at in pieces, so that memory stays bounded.
_LONGEST_LINE = 1 << 20


class FilteredLog:
    """One rank's part of such a file: whole lines, each behind its prefix.

    Not thread-safe. The ranks' parts write to one file, each line at once.
    """

    def __init__(self, file: LogFile, prefix: str, words: Sequence[str]) -> None:
        self._file = file
        self._prefix = prefix.encode()
        self._words = [word.encode() for word in words]
        self._held = b""

    def feed(self, data: bytes) -> None:
        """Take in what the rank has written."""
        *lines, self._held = (self._held + data).split(b"\n")
        if len(self._held) > _LONGEST_LINE:
            lines, self._held = [*lines, self._held], b""
        found = [line for line in lines if any(word in line for word in self._words)]
        if found:
            self._file.feed(b"".join(self._prefix + line + b"\n" for line in found))

    def close(self) -> None:
        """Take in the last line, and close the file."""
        if self._held:
            self.feed(b"\n")
        self._file.close()


def parse_words(text: str) -> list[str]:
    """Read words with commas between them; two commas are one within a word."""
    joined = text.replace(",,", "\0")
    return [word.replace("\0", ",") for word in joined.split(",") if word]
