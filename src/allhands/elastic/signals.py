"""The signals to a launcher, which it reads as bytes while it has a job."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager

__all__ = ["ENDING_SIGNALS", "SignalPipe", "parse_signals", "taken_signals"]

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""They end the job, unless the user has chosen others."""
_PASSED_ON_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)
# They cannot be handled; and that of ended children is the launcher's own.
_UNFIT_SIGNALS = (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD)


class SignalPipe:
    """Signals to this process, as a descriptor yields their numbers."""

    def __init__(self, fd: int, ending: Collection[int] = ENDING_SIGNALS) -> None:
        """Make one.

        Args:
            fd: it yields a byte for each signal, and does not block.
            ending: those that end the job.
        """
        self._fd, self._ending = fd, frozenset(ending)

    def fileno(self) -> int:
        """The descriptor, for a selector."""
        return self._fd

    def read(self) -> tuple[list[int], list[int]]:
        """The signals that have come: those that end the job, those for the ranks.

        The latter, SIGUSR1 and SIGUSR2, change nothing here. It never waits.
        """
        try:
            came = os.read(self._fd, 64)
        except BlockingIOError:
            return [], []
        ending = [number for number in came if number in self._ending]
        others = [n for n in came if n in _PASSED_ON_SIGNALS and n not in self._ending]
        return ending, others


def parse_signals(text: str) -> tuple[signal.Signals, ...]:
    """Read names with commas between them, such as `SIGTERM,SIGUSR1`.

    Raises:
        ValueError: one is no name of a signal that a process can handle.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    known = {s.name: s for s in signal.Signals if s not in _UNFIT_SIGNALS}
    if unknown := [name for name in names if name not in known]:
        raise ValueError(
            f"{unknown[0]!r} is no signal that can be handled; want names with commas "
            "between them, such as SIGTERM,SIGINT,SIGUSR1"
        )
    return tuple(known[name] for name in names)


@contextmanager
def taken_signals(ending: Collection[int]) -> Iterator[SignalPipe | None]:
    """Have those that are sent to this process; `ending` are those that end the job.

    None outside the main thread, where signals are left alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield None
        return
    reading, writing = os.pipe()
    for end in (reading, writing):
        os.set_blocking(end, False)
    before = {
        number: signal.signal(number, lambda *_: None)
        for number in {*ending, *_PASSED_ON_SIGNALS}
        # nohup: the ranks are to outlive the terminal, too.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN
    }
    # Where it is ignored, the kernel keeps no exit codes.
    before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    wakeup = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield SignalPipe(reading, ending)
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            if handler is not None:  # else it was C code's, which Python cannot name
                signal.signal(number, handler)
        os.close(reading)
        os.close(writing)
