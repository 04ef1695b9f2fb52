"""The launcher as its users meet it: a command, its two streams, its exit code."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import textwrap
import time
from collections.abc import Callable, Iterator

from harness.pace import patient
from harness.ranks import LIMIT


def program(folder: pathlib.Path, text: str, name: str = "train.py") -> str:
    """Write a program for the ranks; returns its path."""
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return str(path)


def environment(**variables: str) -> dict[str, str]:
    """This process's environment, without what an outer launcher may have set.

    And buffered, as is usual: what a process prints to a pipe in one go is one write.
    """
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PET_", "TORCHELASTIC_", "ALLHANDS_", "OMP_"))
        and name not in ("COLUMNS", "LINES", "PYTHONUNBUFFERED")
    }
    return {
        **clean,
        "ALLHANDS_PATIENCE": "0",
        "ALLHANDS_CALIBRATION": "no",
        **variables,
    }


def launch(
    *arguments: str, module: str = "allhands.run", **options: object
) -> subprocess.CompletedProcess[str]:
    """Run a whole job."""
    given: dict[str, object] = {"env": environment(), "stdin": subprocess.DEVNULL}
    given |= options
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        **given,
    )


@contextlib.contextmanager
def launched(*arguments: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """A job under way; both streams come by `stdout`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "allhands.run", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(**variables),
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=LIMIT)


def read_until(process: subprocess.Popen[str], num_lines: int, text: str) -> list[str]:
    """Lines of the job's output until `num_lines` of them have `text`."""
    assert process.stdout is not None
    lines: list[str] = []
    while sum(text in line for line in lines) < num_lines:
        line = process.stdout.readline()
        assert line, f"output ended before {num_lines} x {text!r}: {lines}"
        lines.append(line.rstrip("\n"))
    return lines


def wait_until(condition: Callable[[], bool], limit_s: float, what: str) -> None:
    """Wait for what has no event to wait on."""
    start = time.monotonic()
    while not condition():
        elapsed = time.monotonic() - start
        assert elapsed < patient(limit_s, start), f"{what}: not within {limit_s} s"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether a process still runs (a zombie does not)."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def children(parent: int, text: str) -> list[int]:
    """The processes that `parent` started with `text` in their command line."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
            command = (folder / "cmdline").read_text()
            if int(stat[1]) == parent and text in command:
                found.append(int(folder.name))
    return found


# What a shell is to the job: it owns the terminal (Ctrl-C there is a signal), and it
# outlives the job (a terminal may lose output when its owner ends).
_SHELL = """
import fcntl, signal, subprocess, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
job = subprocess.Popen([sys.executable, "-m", "allhands.run", *sys.argv[1:]])
signal.signal(signal.SIGINT, signal.SIG_IGN)
print(f"<exit {job.wait()}>", flush=True)
signal.pause()
"""


class Terminal:
    """A job whose controlling terminal, stdin, stdout and stderr are this one."""

    def __init__(self, *arguments: str, columns: int = 90) -> None:
        self.output = b""
        self._fd, end = pty.openpty()
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("4H", 40, columns, 0, 0))
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SHELL, *arguments],
            stdin=end,
            stdout=end,
            stderr=end,
            env=environment(TERM="xterm"),
            start_new_session=True,
        )
        os.close(end)

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def read_until(self, text: bytes, times: int = 1) -> None:
        """Until the job has written `text` so many times."""
        while self.output.count(text) < times:
            self.output += os.read(self._fd, 65536)

    def wait(self) -> int:
        """Until the job has ended; returns its exit code."""
        while not (found := re.search(rb"<exit (\d+)>\r\n", self.output)):
            self.output += os.read(self._fd, 65536)
        self.output = self.output[: found.start()]
        self._process.kill()
        self._process.wait()
        os.close(self._fd)
        return int(found[1])
