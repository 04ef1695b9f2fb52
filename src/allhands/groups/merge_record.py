"""MergeRecord: what groups of several worlds keep in their store while they merge."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from allhands.errors import DistStoreError
from allhands.rendezvous.identity import Identity, is_alive, is_identity

__all__ = ["CALL", "KEY", "MergeRecord"]

KEY = "merge"
"""The key of the record in the store."""
CALL = "merge_remote_group"
"""The name of the call in errors."""
_NUM_FAILURES = 16  # the most failures that a record keeps


@dataclass
class MergeRecord:
    """See the module."""

    attempt: int = 0
    size: int = 0
    come: int = 0
    failures: dict[int, str] = field(default_factory=dict)
    """The last failures, by attempt."""
    processes: list[Identity] = field(default_factory=list)
    """The process of rank 0 of each group that has come."""

    @staticmethod
    def read(data: bytes | None) -> MergeRecord:
        """Parse the store's value; None means that there is none yet.

        Raises:
            DistStoreError: the value is not the record of a merge.
        """
        if data is None:
            return MergeRecord()
        try:
            attempt, size, come, failures, processes = json.loads(data)
            numbers = [attempt, size, come, *map(int, failures)]
            texts = failures.values()
            if not all(type(n) is int and n >= 0 for n in numbers) or come > size:
                raise ValueError("numbers out of range")
            if not all(isinstance(text, str) for text in texts):
                raise ValueError("failures without text")
            if not all(is_identity(*parts) for parts in processes):
                raise ValueError("no identities of processes")
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise DistStoreError(
                f"{CALL}: key {KEY!r} of the store holds {data[:80]!r}, which no "
                f"merge has written ({error}); use a store, or a prefix, that serves "
                f"nothing else"
            ) from None
        failures = dict(zip(numbers[3:], texts, strict=True))
        identities = [Identity(*parts) for parts in processes]
        return MergeRecord(attempt, size, come, failures, identities)

    def write(self) -> bytes:
        """Return the record as the value for the store."""
        failures = {str(n): text for n, text in self.failures.items()}
        said = [self.attempt, self.size, self.come, failures, self.processes]
        return json.dumps(said).encode()

    def is_full(self) -> bool:
        """Return whether all groups have come."""
        return 0 < self.size == self.come

    def death(self) -> str:
        """Return an error text if rank 0 of a group came and died, else ""."""
        dead = [each.pid for each in self.processes if not is_alive(each)]
        if not dead:
            return ""
        return f"{CALL}: pid {dead[0]}, rank 0 of a group that had come, died"

    def next(self, failure: str = "") -> MergeRecord:
        """Return the record of the next attempt; `failure` says why this one failed."""
        failures = dict(self.failures)
        if failure:
            failures[self.attempt] = failure
        last = sorted(failures)[-_NUM_FAILURES:]
        return MergeRecord(self.attempt + 1, 0, 0, {n: failures[n] for n in last})
