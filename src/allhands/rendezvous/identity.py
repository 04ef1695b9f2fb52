"""What a rank says of itself in the store: its process, and the size of its world."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, TypeAlias

from allhands._C import process_identity
from allhands.errors import DistStoreError

__all__ = ["Identity", "Introduction", "is_identity"]

Identity: TypeAlias = tuple[str, int, int]
"""Host, pid and start time of a process: who it is among all hosts."""


class Introduction(NamedTuple):
    """What a rank posts when it comes."""

    world_size: int
    identity: Identity

    @staticmethod
    def of_this_process(world_size: int) -> Introduction:
        """What this process posts."""
        return Introduction(world_size, process_identity())

    def to_bytes(self) -> bytes:
        """As the store has it."""
        return json.dumps([self.world_size, *self.identity]).encode()

    @staticmethod
    def read(rank: int, text: bytes) -> Introduction:
        """What the store has of `rank`.

        Raises:
            DistStoreError: no rank wrote that.
        """
        try:
            size, *identity = json.loads(text)
        except (ValueError, TypeError, RecursionError):
            size, identity = 0, []
        if type(size) is not int or size < 1 or not is_identity(*identity):
            raise DistStoreError(
                f"the store says of rank {rank} what no rank writes: {text[:80]!r}; "
                f"every rank needs the same version of allhands, and no other program "
                f"may write there"
            )
        return Introduction(size, tuple(identity))


def is_identity(*parts: Any) -> bool:
    """Whether these can be a process's host, pid and start time."""
    if len(parts) != 3:
        return False
    host, pid, start = parts
    return (
        type(host) is str
        and type(pid) is type(start) is int
        and 0 < pid < 1 << 31
        and 0 <= start < 1 << 63
    )
