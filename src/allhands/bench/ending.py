"""How the commands that measure end: with an exit code, and the reason on stderr."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable

from allhands.bench.job import JobError

__all__ = ["carried_out"]

_INTERRUPTED = 130  # the exit code of shells for Ctrl-C


def carried_out(prog: str, act: Callable[[], None], lost: str = "") -> int:
    """Call `act` for the command `prog` and return the command's exit code.

    SIGTERM interrupts the command just as Ctrl-C does. `lost` says what an interrupted
    command leaves undone.
    """
    # Handled as Ctrl-C, SIGTERM lets the `finally` blocks clean up.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        act()
    except BrokenPipeError:  # of stdout, whose reader has seen enough
        raise
    except (JobError, OSError) as error:
        sys.stderr.write(f"{prog}: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write(f"{prog}: interrupted{lost}\n")
        return _INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)
    return 0
