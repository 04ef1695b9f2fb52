"""Keyboard: reads keys as they are pressed, without an echo in the terminal."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Keyboard"]


class Keyboard:
    """The keys of stdin; none if stdin is not a terminal."""

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno() if sys.stdin and sys.stdin.isatty() else -1

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Get keys at once within the block; restore the terminal after it."""
        if self._fd < 0:
            yield
            return
        before = termios.tcgetattr(self._fd)
        try:
            tty.setcbreak(self._fd)
            yield
        finally:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, before)

    def wait(self, seconds: float) -> str:
        """Return the keys pressed within this time; empty if there were none."""
        if self._fd < 0:
            time.sleep(seconds)
            return ""
        readable, _, _ = select.select([self._fd], [], [], seconds)
        if not readable:
            return ""
        pressed = os.read(self._fd, 64)
        if not pressed:  # the terminal is gone
            raise KeyboardInterrupt
        return pressed.decode(errors="replace")
