"""How the process of a rank starts: what it is given, and what is left to be done."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

__all__ = ["Process", "Program", "Start", "executing"]


class Program(NamedTuple):
    """What a rank runs, and what only its process has."""

    command: Sequence[str]
    environment: Mapping[str, str]
    is_typed_to: bool
    """Whether its stdin is the launcher's; else it is an empty one."""
    stdout: int
    stderr: int
    inherited: Sequence[int] = ()
    """Descriptors that it has under the same numbers."""


class Process(Protocol):
    """A child of the launcher, in a session of its own."""

    @property
    def pid(self) -> int:
        """Its number."""

    def wait(self) -> int:
        """Wait for its end, and let go of its pid."""


Start = Callable[[Program], Process]
"""Starts a rank. Raises `OSError` where that cannot be."""


def executing(before_exec: Callable[[], None] | None) -> Start:
    """Start each rank as a new program; `before_exec` is called just before it runs."""

    def start(program: Program) -> Process:
        return subprocess.Popen(
            program.command,
            env=program.environment,
            stdin=None if program.is_typed_to else subprocess.DEVNULL,
            stdout=program.stdout,
            stderr=program.stderr,
            pass_fds=program.inherited,
            start_new_session=True,
            preexec_fn=before_exec,
        )

    return start
