"""A small process that outlives the launcher and ends whatever its ranks left behind.

The guard reads a pipe. Its end means that the launcher is done or dead, SIGKILL
included; the guard then kills the ranks' process groups and every process that carries
the job's mark in its environment, until two looks in a row find none. A rank's
children inherit the mark, so daemons in sessions of their own are found as well. A
descendant escapes only with another environment *and* another process group, or if
the guard is killed together with the launcher.

This file is both sides: the launcher's `Guard`, and the program that the guard runs
(on its own, from the standard library alone, without site-packages).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

__all__ = ["Guard"]

# The guard's command line names neither this package nor the job: `pkill -f` on either
# must not take away the one that cleans up.
_START = "exec(open(input()).read())"
_PAUSE_S = 0.01
_PASSES = 300


class Guard:
    """Launcher's side: starts the process, tells it the ranks. One thread at a time."""

    def __init__(self, variable: str, mark: str) -> None:
        """Start a guard for all processes with `variable=mark` in their environment."""
        import subprocess

        environment = {k: v for k, v in os.environ.items() if k != variable}
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _START],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # out of reach of the terminal's signals
        )
        self._tell(f"{os.path.abspath(__file__)}\n{variable}={mark}\n")

    def watch(self, group: int) -> None:
        """Also end this process group; its leader must not be reaped before `sweep`."""
        self._tell(f"{group}\n")

    def sweep(self) -> None:
        """Let the guard end what is left, and wait for it."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()

    def _tell(self, text: str) -> None:
        assert self._process.stdin is not None
        # Where somebody killed the guard, the job goes on without it.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(text.encode())
            self._process.stdin.flush()


def _is_left(process: str, groups: set[int], mark: bytes) -> bool:
    """Whether it is in one of the groups or carries the mark, and has not ended yet."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            state, _, group, *_ = file.read().rpartition(b")")[2].split()
        if state in (b"Z", b"X"):
            return False
        if int(group) in groups:
            return True
        with open(f"/proc/{process}/environ", "rb") as file:
            return mark in file.read().split(b"\0")
    except OSError:
        return False  # gone, or another user's


def _main() -> None:
    mark = input().encode()
    groups = {int(line) for line in sys.stdin}  # until the launcher closes it, or dies
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    quiet = 0
    for _ in range(_PASSES):
        processes = filter(str.isdigit, os.listdir("/proc"))
        left = [int(name) for name in processes if _is_left(name, groups, mark)]
        for process in left:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        quiet = 0 if left else quiet + 1
        if quiet == 2:
            return
        time.sleep(_PAUSE_S)


if __name__ == "__main__":
    _main()
