"""Another process tries what this one must not: to load a library, for example."""

from __future__ import annotations

import subprocess
import sys

__all__ = ["told_by"]

_LONGEST = 60  # seconds; a second is usual
_PATH = "import sys\nsys.path[:] = sys.argv[1:]\n"


def told_by(source: str) -> str:
    """Return what a process that runs `source` writes to stdout, or its failure.

    The process has the module path of this one.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PATH + source, *sys.path],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LONGEST,
        )
    except OSError as error:
        return f"no process could be started to try it: {error}"
    except subprocess.TimeoutExpired:
        return f"the process that tried did not end within {_LONGEST} s"
    if done.returncode:
        return f"exit code {done.returncode} of the process that tried"
    return done.stdout
