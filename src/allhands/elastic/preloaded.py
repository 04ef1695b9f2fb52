"""Ranks forked from a process that has loaded modules before: the launcher's side.

The process is started as a rank is, with the same program, environment and flags. In
the middle of Python's start it meets `preloading/sitecustomize.py`, and stays there.
See that file for what the two say to each other.

One start of the ranks has one such process. The launcher ends it when all are forked;
the ranks, who waited for that, are the launcher's own children then. One thread.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from allhands.elastic.start import Process, Program
from allhands.elastic.worker_spec import Preload

__all__ = ["LOADED_LATER", "Preloaded"]

LOADED_LATER = {
    "allhands": [
        "allhands.arrays._exported",
        "allhands.arrays._numpy",
        "allhands.arrays.future",
        "allhands.backends.native",
        "allhands.backends.nccl.found",
        "allhands.backends.tuned",
        "hashlib",
    ]
}
"""Of a module, what a program that imports it loads sooner or later anyway."""

_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "preloading")
_MESSAGE_BYTES = 1 << 18
# Of a fork; it was ready before.
_ANSWER_LIMIT_S = 30.0
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37


@dataclass(frozen=True)
class _Forked:
    """A rank that was forked."""

    pid: int

    def wait(self) -> int:
        return os.waitpid(self.pid, 0)[1]


class Preloaded:
    """The process that forks the ranks, from its start to `end`.

    `fileno` is readable once it has loaded the modules, or could not; `check` says
    which. Then `start` forks a rank.
    """

    def __init__(
        self,
        preload: Preload,
        command: Sequence[str],
        environment: Mapping[str, str],
        before_exec: Callable[[], None] | None,
    ) -> None:
        """Start it with the command and environment that all ranks have in common.

        Raises:
            OSError: it cannot be started.
        """
        self._modules = ",".join(preload.modules)
        self._adopted_before: bool | None = None  # None: nothing was changed
        self._environment = environment
        python_path = environment.get("PYTHONPATH")
        paths = [_FOLDER, *([python_path] if python_path else [])]
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                self._process = subprocess.Popen(
                    command,
                    env={**environment, "PYTHONPATH": os.pathsep.join(paths)},
                    stdin=theirs.fileno(),
                    start_new_session=True,
                    preexec_fn=before_exec,
                )
            config = {
                "folder": _FOLDER,
                "python_path": python_path,
                "modules": [*_completed(preload.modules)],
                "first_path": preload.first_path,
            }
            self._socket.send(marshal.dumps(config))
        except BaseException:
            self._socket.close()
            raise
        self._socket.settimeout(_ANSWER_LIMIT_S)
        self._null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)

    @property
    def pid(self) -> int:
        """The process's; it is valid until `reap`."""
        return self._process.pid

    def fileno(self) -> int:
        """A descriptor that is readable once there is something to check."""
        return self._socket.fileno()

    def check(self) -> None:
        """Raise if it is not ready to start ranks.

        Raises:
            OSError: the modules cannot be loaded, or no rank be forked with them.
        """
        if problem := self._answer():
            raise OSError(f"--preload {self._modules}: {problem}")
        self._adopted_before = _adopt_orphans(True)

    def start(self, program: Program) -> Process:
        """Fork a rank; it waits for `end`.

        Raises:
            OSError: the kernel allows no process, or the one that forks is gone.
        """
        own = {
            name: value
            for name, value in program.environment.items()
            if self._environment.get(name) != value
        }
        stdin = 0 if program.is_typed_to and _is_open(0) else self._null
        streams = [stdin, program.stdout, program.stderr]
        socket.send_fds(self._socket, [marshal.dumps(own)], streams)
        pid = self._answer()
        if pid < 0:
            raise OSError(-pid, os.strerror(-pid))
        return _Forked(pid)

    def end(self) -> None:
        """End it, and so let the ranks that it has forked go on; idempotent."""
        if self._null < 0:
            return
        self._socket.close()
        os.close(self._null)
        self._null = -1
        os.kill(self.pid, signal.SIGKILL)
        # Its pid stays its own until `reap`: its process group is still to be swept.
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        if self._adopted_before is not None:
            _adopt_orphans(self._adopted_before)

    def reap(self) -> None:
        """Let go of its pid."""
        self._process.wait()

    def _answer(self) -> int:
        try:
            message = self._socket.recv(_MESSAGE_BYTES)
        except TimeoutError:
            problem = f"did not answer within {_ANSWER_LIMIT_S:g} s"
        except OSError as error:
            problem = f"does not answer: {error}"
        else:
            if message:
                answer: int = marshal.loads(message)
                return answer
            problem = "has ended"
        raise OSError(f"--preload {self._modules}: the process that forks {problem}")


def _completed(modules: Sequence[str]) -> Iterator[str]:
    for module in modules:
        yield module
        yield from LOADED_LATER.get(module, [])


def _is_open(fd: int) -> bool:
    try:
        return os.get_inheritable(fd)
    except OSError:
        return False


def _adopt_orphans(is_wanted: bool) -> bool:
    """Have processes below become this one's children when their parent ends, or not.

    Returns what was so before.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    before = ctypes.c_int()
    for option, value in (
        (_PR_GET_CHILD_SUBREAPER, ctypes.byref(before)),
        (_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(is_wanted)),
    ):
        if libc.prctl(option, value, 0, 0, 0) != 0:
            code = ctypes.get_errno()
            raise OSError(code, f"prctl: {os.strerror(code)}")
    return bool(before.value)
