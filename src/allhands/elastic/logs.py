"""Where each rank's stdout and stderr go: the console, a file per rank, or both.

The notation is torchrun's: a number for all ranks (`3`) or a list per local rank
(`0:1,1:2`); 0 is none, 1 stdout, 2 stderr, 3 both.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Set
from dataclasses import dataclass

__all__ = ["DefaultLogsSpecs", "Std"]


class Std(enum.IntFlag):
    """A set of standard streams."""

    NONE = 0
    OUT = 1
    ERR = 2
    ALL = OUT | ERR

    @classmethod
    def from_str(cls, vm: str) -> Std | dict[int, Std]:
        """Read `3` (every rank) or `0:1,1:2` (by local rank; the others get none).

        Raises:
            ValueError: the text is neither.
        """
        try:
            if ":" not in vm:
                return cls(_digit(vm))
            pairs = (item.split(":") for item in vm.split(","))
            return {int(rank): cls(_digit(value)) for rank, value in pairs}
        except ValueError:
            raise ValueError(
                f"{vm!r} does not match a choice of streams: want 0, 1, 2 or 3 for all "
                "ranks, or a list by local rank such as 0:1,1:2 (1 is stdout, 2 "
                "stderr, 3 both)"
            ) from None


def _digit(text: str) -> int:
    if text.strip() not in ("0", "1", "2", "3"):
        raise ValueError
    return int(text)


@dataclass(frozen=True)
class DefaultLogsSpecs:
    """Which streams are written to files, which of them also to the console.

    The name and its fields are torch's. Immutable.
    """

    log_dir: str | None = None
    """The folder of the files. None: a new one for temporary files."""
    redirects: Std | Mapping[int, Std] = Std.NONE
    """Streams that go to files only, of all ranks or by local rank."""
    tee: Std | Mapping[int, Std] = Std.NONE
    """Streams that go to files and to the console."""
    local_ranks_filter: Set[int] | None = None
    """Local ranks shown on the console. None or empty: all of them."""

    @property
    def root_log_dir(self) -> str | None:
        """The folder of the files, if one was named."""
        return self.log_dir

    def to_file(self, local_rank: int, std: Std) -> bool:
        """Whether this stream of this rank is written to a file."""
        return bool(std & (self._of(self.redirects, local_rank))) or self.is_teed(
            local_rank, std
        )

    def to_console(self, local_rank: int, std: Std) -> bool:
        """Whether this stream of this rank is shown on the console."""
        if self.local_ranks_filter and local_rank not in self.local_ranks_filter:
            return False
        return not self.to_file(local_rank, std) or self.is_teed(local_rank, std)

    def is_teed(self, local_rank: int, std: Std) -> bool:
        """Whether this stream of this rank goes to a file and to the console."""
        return bool(std & self._of(self.tee, local_rank))

    @staticmethod
    def _of(choice: Std | Mapping[int, Std], local_rank: int) -> Std:
        if isinstance(choice, Std):
            return choice
        return choice.get(local_rank, Std.NONE)
