"""The signals to a launcher, which it reads as bytes while it has a job."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["ENDING_SIGNALS", "PASSED_ON_SIGNALS", "ending_signals", "taken_signals"]

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""They end the job."""
PASSED_ON_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)
"""They go to the ranks, and change nothing here."""


def ending_signals(signals: int) -> list[int]:
    """Those that end the job, of what the descriptor `signals` has; never waits."""
    try:
        return [number for number in os.read(signals, 64) if number in ENDING_SIGNALS]
    except BlockingIOError:
        return []


@contextmanager
def taken_signals() -> Iterator[int | None]:
    """A descriptor that yields the numbers of those that are sent to this process.

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
        for number in (*ENDING_SIGNALS, *PASSED_ON_SIGNALS)
        # nohup: the ranks are to outlive the terminal, too.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN
    }
    # Where it is ignored, the kernel keeps no exit codes.
    before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    wakeup = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield reading
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            if handler is not None:  # else it was C code's, which Python cannot name
                signal.signal(number, handler)
        os.close(reading)
        os.close(writing)
