"""The ranks' output on the launcher's console: one writer, a prefix on every line.

A `Screen` is one destination, on which ranks meet; a `RankOutput` turns what one rank
writes into prefixed lines for it. Two modes:

- Plain (a file, a pipe): only whole lines pass, so lines of two ranks never mix.
- Live (a terminal): everything passes at once, so that progress displays move. A
  screen has at most one open line (or display that redraws itself). Whole lines of
  another rank end it by a newline first, and it goes on below them; a second open line
  waits until the first is ended, or idle for a second.

The prefix comes before the first printable character of a line, that is after a
carriage return and after sequences that erase; a display that redraws its line gets
its prefix back each time.

Nothing here waits: a destination that takes no more keeps `is_clogged` true, and the
caller stops reading from the ranks until it drains. One thread.
"""

from __future__ import annotations

import errno
import os
import re
import select
import stat
import time

__all__ = ["RankOutput", "Screen", "line_prefix"]

# poll(2) promises that a pipe reported writable takes this much without blocking.
_PIECE = 4096
# A line longer than this passes in pieces, so that memory stays bounded.
_LONGEST_LINE = 1 << 20

_TOKEN = re.compile(
    rb"\r*\n|\r"
    rb"|\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor, erase
    rb"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: titles, links
    rb"|\x1b[ -/]*[0-~]?"  # other escapes
    rb"|[^\r\n\x1b]+"
)
# What may go on in the next read: an escape sequence, a carriage return (of \r\n?), a
# character of several bytes.
_UNFINISHED = re.compile(
    rb"(?:\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]*\x1b?|[ -/]*)|\r+"
    rb"|[\xc0-\xff]|[\xe0-\xff][\x80-\xbf]|[\xf0-\xff][\x80-\xbf]{2})\Z"
)
_TO_FIRST_COLUMN = re.compile(rb"\r|\x1b\[[01]?G")
_CURSOR_UP = re.compile(rb"\x1b\[(\d*)A")
_IDLE_S = 1.0
_COLOURS = (36, 33, 35, 32, 34, 31)


def _lines_up(data: bytes) -> int:
    """How far the cursor moves up before anything is written."""
    ups = 0
    for token in _TOKEN.findall(data):
        if token[0] not in b"\r\x1b" or token.endswith(b"\n"):
            break
        match = _CURSOR_UP.fullmatch(token)
        ups += int(match[1] or 1) if match else 0
    return min(ups, 1000)


def line_prefix(rank: int) -> str:
    """Return what begins each line of a rank, unless the job says otherwise."""
    return f"[rank{rank}] "


class Screen:
    """One destination of the ranks' output: the launcher's stdout, its stderr, or both.

    Not thread-safe.
    """

    def __init__(self, fd: int, live: bool) -> None:
        self.fd = fd
        self.is_live = live
        self.is_lost = False
        """Nobody takes what is written; what comes now is dropped."""
        self.problem: OSError | None = None
        """Why it is lost, where it is not that its reader is gone."""
        self._owner: RankOutput | None = None
        self._owned_at = 0.0
        self._pending = bytearray()
        self._takes_all = stat.S_ISREG(os.fstat(fd).st_mode)
        self._used_escapes = False

    @property
    def is_clogged(self) -> bool:
        """Something waits to be written; call `flush` when the file is writable."""
        return bool(self._pending)

    def terminal_environment(self, prefix: str) -> dict[str, str]:
        """What tells a program whose stdout is a pipe that a terminal is behind it.

        rich honours all of it; most programs honour the size, which leaves room for
        the prefix.
        """
        if not self.is_live:
            return {}
        environment = {"TTY_COMPATIBLE": "1", "TTY_INTERACTIVE": "1"}
        size = os.get_terminal_size(self.fd)
        if size.columns:
            width = max(20, size.columns - len(prefix))
            environment |= {"COLUMNS": str(width), "LINES": str(size.lines)}
        return environment

    def show(self, source: RankOutput, data: bytes, is_open: bool) -> None:
        """Write `data` of one rank; `is_open`: its last line is not ended yet."""
        self._end_line_of_others(source)
        self._owner = source if is_open else None
        self._owned_at = time.monotonic()
        self._used_escapes = self._used_escapes or b"\x1b" in data
        if not self.is_lost:
            self._pending += data
            self.flush()

    def say(self, lines: str) -> None:
        """Write what the launcher itself says, below what the ranks wrote."""
        self._end_line_of_others(None)
        if not self.is_lost:
            self._pending += lines.encode(errors="backslashreplace")
            self.flush()

    def takes_open_line_of(self, source: RankOutput) -> bool:
        """Whether a line that is not ended may be shown."""
        is_free = self._owner is None or self._owner is source
        return self.is_live and (is_free or time.monotonic() - self._owned_at > _IDLE_S)

    def close(self) -> None:
        """End an open line, and undo what a killed display left: no cursor, colours."""
        self._end_line_of_others(None)
        if self.is_live and self._used_escapes:
            self._pending += b"\x1b[?25h\x1b[0m"
        self.flush()

    def flush(self) -> None:
        """Write what the destination takes without blocking."""
        try:
            while self._pending and self._is_ready():
                size = len(self._pending) if self._takes_all else _PIECE
                del self._pending[: os.write(self.fd, self._pending[:size])]
        except OSError as error:
            # EIO is of a terminal that was hung up.
            if error.errno not in (errno.EPIPE, errno.EIO):
                self.problem = error
            self.drop()

    def drop(self) -> None:
        """Write no more, also not what waits."""
        self.is_lost = True
        self._pending.clear()

    def _is_ready(self) -> bool:
        if self._takes_all:
            return True
        poll = select.poll()
        poll.register(self.fd, select.POLLOUT)
        return bool(poll.poll(0))

    def _end_line_of_others(self, source: RankOutput | None) -> None:
        if self._owner is not None and self._owner is not source:
            self._owner.interrupt()
            self._owner = None
            self._pending += b"\n"


class RankOutput:
    """What one rank writes to one of its streams, on its way to a screen."""

    def __init__(
        self, screen: Screen, rank: int, colour: bool = False, prefix: str = ""
    ) -> None:
        """Make one; `prefix` begins each line, in place of `[rank0] `."""
        self._screen = screen
        prefix = prefix or line_prefix(rank)
        if colour:
            name = prefix.rstrip()
            shown = f"\x1b[{_COLOURS[rank % len(_COLOURS)]}m{name}\x1b[39m"
            prefix = shown + prefix[len(name) :]
        self._prefix = prefix.encode()
        self._own_prefix = f"[rank{rank}]: ".encode()
        self._held = b""
        self._prefix_due = True
        self._is_open = False
        self._was_cut = False

    def feed(self, data: bytes) -> None:
        """Pass on as much as may be shown now."""
        data = self._held + data if self._held else data
        if self._screen.takes_open_line_of(self):
            end = self._finished_end(data)
            self._held = data[end:]
        else:
            end = data.rfind(b"\n") + 1
            self._held = data[end:]
            if self._screen.is_live:  # of a display that waits, the last state counts
                self._held = self._held[max(0, self._held.rfind(b"\r")) :]
        if len(self._held) > _LONGEST_LINE:
            end, self._held = len(data), b""
        if end:
            self._show(data[:end])

    def close(self) -> None:
        """The rank writes no more: pass on the rest, end its last line."""
        rest, self._held = self._held, b""
        if rest:
            self._show(rest)
        if self._is_open:
            self._show(b"\n")

    def interrupt(self) -> None:
        """Another rank took the screen: the rest of the line goes on a new one."""
        self._prefix_due = True
        self._is_open = False
        self._was_cut = True

    def _show(self, data: bytes) -> None:
        room = b""
        if self._was_cut:
            self._was_cut = False
            data = data.removeprefix(b"\n")  # that line has its end already
            # A display moves up to redraw itself: not over the lines of other ranks.
            room = b"\n" * _lines_up(data)
        shown = room + self._prefixed(self._without_own_prefix(data))
        if shown:
            self._screen.show(self, shown, self._is_open)

    @staticmethod
    def _finished_end(data: bytes) -> int:
        match = _UNFINISHED.search(data, max(0, len(data) - 256))
        return match.start() if match else len(data)

    def _without_own_prefix(self, data: bytes) -> bytes:
        """A rank names itself in tracebacks; once is enough."""
        if self._own_prefix not in data:
            return data
        if self._prefix_due:
            data = data.removeprefix(self._own_prefix)
        return data.replace(b"\n" + self._own_prefix, b"\n")

    def _prefixed(self, data: bytes) -> bytes:
        if not data:
            return data
        if b"\r" in data or b"\x1b" in data:
            return b"".join(map(self._prefixed_token, _TOKEN.findall(data)))
        start = self._prefix if self._prefix_due else b""
        ends_line = data.endswith(b"\n")
        body = data[:-1] if ends_line else data
        self._prefix_due = ends_line
        self._is_open = not ends_line
        return b"%b%b%b" % (
            start,
            body.replace(b"\n", b"\n" + self._prefix),
            b"\n" if ends_line else b"",
        )

    def _prefixed_token(self, token: bytes) -> bytes:
        if token.endswith(b"\n"):
            prefix = b"" if self._is_open else self._prefix
            self._prefix_due, self._is_open = True, False
            return prefix + token
        if token[0] in b"\r\x1b":
            self._prefix_due |= _TO_FIRST_COLUMN.fullmatch(token) is not None
            return token
        prefix = self._prefix if self._prefix_due else b""
        self._prefix_due, self._is_open = False, True
        return prefix + token
