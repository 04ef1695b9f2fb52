"""A small process that outlives the launcher and ends whatever its ranks left behind.

The guard reads a pipe. Its end means that the launcher is done or dead, SIGKILL
included; the guard then kills the ranks' process groups and every process that carries
the job's mark in its environment, until two looks in a row find none. A rank's
children inherit the mark, so daemons in sessions of their own are found as well. A
descendant escapes only with another environment *and* another process group, or if
the guard is killed together with the launcher.

A process that is just being started has neither: the mark comes with its `exec`, the
group with the launcher's next line. So the launcher says before it starts one, and a
guard that hears nothing more looks on until that process shows up.

This file is both sides: the launcher's `Guard`, and the program that the guard runs
(on its own, from the standard library alone, without site-packages).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator

__all__ = ["Guard"]

# The guard's command line names neither this package nor the job: `pkill -f` on either
# must not take away the one that cleans up.
_START = "exec(open(input()).read())"
_PAUSE_S = 0.01
_PASSES = 300
# Between looks for a process that the launcher was starting: `exec` may take 30 s.
_LATE_PAUSE_S = 0.1


class Guard:
    """Starts a process that ends what ranks left behind. One thread at a time."""

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

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """Enclose the start of a process with the mark, and the `watch` of it."""
        self._tell("starting\n")
        try:
            yield
        finally:
            self._tell("started\n")

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
    groups, is_starting = set(), False
    for line in map(str.strip, sys.stdin):  # until the launcher closes it, or dies
        if line.isdigit():
            groups.add(int(line))
        else:
            is_starting = line == "starting"
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
        is_starting = is_starting and not left
        if quiet >= 2 and not is_starting:
            return
        time.sleep(_LATE_PAUSE_S if is_starting else _PAUSE_S)


if __name__ == "__main__":
    _main()
