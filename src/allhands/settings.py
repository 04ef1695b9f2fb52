"""Every `ALLHANDS_*` environment variable: name, type, default, help.

The only reader of them. A setting is read when it is asked for, not at import, so a
program may set it before `init_process_group`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["ALL", "Setting", "job_mark", "secret"]

T = TypeVar("T")


@dataclass(frozen=True)
class Setting(Generic[T]):
    """One environment variable; `get()` reads it."""

    name: str
    parse: Callable[[str], T]
    default: T
    help: str

    def get(self) -> T:
        """Its value now, or the default where it is unset or empty.

        Raises:
            ValueError: the text is not a value of this setting.
        """
        text = os.environ.get(self.name, "")
        if not text:
            return self.default
        try:
            return self.parse(text)
        except ValueError as error:
            raise ValueError(
                f"environment variable {self.name} is {text!r}: {error}"
            ) from error


secret = Setting(
    "ALLHANDS_SECRET",
    str,
    "",
    "The job's secret. Where it is set, a store and its clients prove to each "
    "other that they know it before any data passes. `allhands run` makes one per job.",
)

job_mark = Setting(
    "ALLHANDS_JOB",
    str,
    "",
    "Made by `allhands run` for each start of the ranks, and by `allhands bench`. "
    "Processes that still carry it when the job is over, or the command that started "
    "them was killed, are killed too.",
)

ALL: tuple[Setting[str], ...] = (secret, job_mark)
