"""Outcome: the result of a meeting, which rank 0 writes to the store as one value."""

from __future__ import annotations

import json
from typing import NamedTuple

from allhands.errors import DistStoreError

__all__ = ["TOKEN_BYTES", "Outcome"]

TOKEN_BYTES = 16


class Outcome(NamedTuple):
    """Why rank 0 gave up, or else the data that the others need.

    Attributes:
        problem: why rank 0 gave up; empty if all have come.
        token: the token of the job, in hexadecimal.
        roster: all ranks, `composed`; empty if it is too long to send to each rank.
        digest: the digest of a roster that is elsewhere; see `host_copy`.
        copy: the descriptor in rank 0's process that has it; -1 if there is none.
    """

    problem: str = ""
    token: str = ""
    roster: str = ""
    digest: str = ""
    copy: int = -1

    def to_bytes(self) -> bytes:
        """Return the outcome as the value for the store."""
        return json.dumps(self).encode()

    @staticmethod
    def read(text: bytes) -> Outcome:
        """Parse the store's value.

        Raises:
            DistStoreError: rank 0 did not write this value.
        """
        try:
            outcome = Outcome(*json.loads(text))
            bytes.fromhex(outcome.token)
        except (ValueError, TypeError, RecursionError):
            outcome = Outcome()
        if (
            tuple(map(type, outcome)) != (str, str, str, str, int)
            or not (outcome.problem or len(outcome.token) == 2 * TOKEN_BYTES)
            or not (outcome.problem or outcome.roster or outcome.digest)
        ):
            raise DistStoreError(
                f"what the store has as the outcome of the meeting is none: "
                f"{text[:80]!r}; every rank needs the same version of allhands, and no "
                f"other program may write there"
            )
        return outcome
