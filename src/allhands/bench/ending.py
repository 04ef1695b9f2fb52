"""How the commands that measure end: an exit code, and on stderr why."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable

from allhands.bench.job import JobError

__all__ = ["carried_out"]

_INTERRUPTED = 130  # the exit code of shells for Ctrl-C


def carried_out(prog: str, act: Callable[[], None], lost: str = "") -> int:
    """The exit code of command `prog` after `act()`; SIGTERM ends it as Ctrl-C does.

    `lost` says what an interrupted one leaves undone.
    """
    # As Ctrl-C, so that nothing is left behind.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        act()
    except (JobError, OSError) as error:
        sys.stderr.write(f"{prog}: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write(f"{prog}: interrupted{lost}\n")
        return _INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)
    return 0
