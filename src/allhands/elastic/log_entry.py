"""What the launchers of a job tell each other while it runs.

Entries stand in a log in the store, in one order for all nodes: so all come to the same
end of the job by themselves.
"""

from __future__ import annotations

import enum
import json
from typing import NamedTuple

from allhands.elastic.node import has_types
from allhands.errors import DistStoreError

__all__ = ["ENDING", "Kind", "LogEntry"]


class Kind(str, enum.Enum):
    """What an entry tells of its node."""

    FAILED = "failed"  # one of its ranks, or it cannot start them
    SIGNALED = "signaled"  # its launcher got a signal that ends the job
    KILLED = "killed"  # its launcher kills what still runs: a second Ctrl-C
    LOST = "lost"  # nothing is heard of it any more
    DONE = "done"  # its ranks of this attempt have ended
    LEFT = "left"  # it needs the store no more


ENDING = (Kind.FAILED, Kind.SIGNALED, Kind.LOST)
"""What ends an attempt early; such an entry has lines."""
_TYPES = (str, int, int, list, bool, int)
_NUMBERS = range(256)


class LogEntry(NamedTuple):
    """An entry of the log that the launchers of a job share."""

    kind: Kind
    node: int
    number: int = 0
    """The exit code (FAILED, LOST, DONE) as a shell has it; or the signal."""
    lines: tuple[str, ...] = ()
    """What the launchers of other nodes say of it."""
    is_secondary: bool = False
    """Whether it only followed from what happened elsewhere."""
    serial: int = 0
    """Tells it from others of the same node."""

    def to_bytes(self) -> bytes:
        """As the store has it."""
        return json.dumps(self).encode()

    @staticmethod
    def read(text: bytes, num_nodes: int) -> LogEntry:
        """An entry of the log of so many nodes.

        Raises:
            DistStoreError: no launcher wrote that.
        """
        try:
            parts = json.loads(text)
            if has_types(parts, _TYPES):
                kind, node, number, lines, is_secondary, serial = parts
                entry = LogEntry(
                    Kind(kind), node, number, tuple(lines), is_secondary, serial
                )
                if _makes_sense(entry, num_nodes):
                    return entry
        except (ValueError, RecursionError):
            pass  # refused below, as what is JSON and no entry
        raise DistStoreError(
            f"the log of the job's launchers has {text[:80]!r}, which no launcher "
            "writes"
        )


def _makes_sense(entry: LogEntry, num_nodes: int) -> bool:
    return (
        0 <= entry.node < num_nodes
        and entry.number in _NUMBERS
        and all(type(line) is str for line in entry.lines)
        and (entry.kind not in ENDING or len(entry.lines) > 0)
    )
