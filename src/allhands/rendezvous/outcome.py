"""The outcome of a meeting: what rank 0 tells the others, as one value in the store."""

from __future__ import annotations

import json
from typing import NamedTuple

from allhands.errors import DistStoreError

__all__ = ["TOKEN_BYTES", "Outcome"]

TOKEN_BYTES = 16


class Outcome(NamedTuple):
    """Why rank 0 gave up, or else what the others need.

    Attributes:
        problem: why; empty where all have come.
        token: of the job, in hexadecimal.
        roster: all ranks, `composed`; empty where it is too long to be told each rank.
        digest: of the roster that is elsewhere; see `host_copy`.
        copy: the descriptor of rank 0's process that has it; -1: none has.
    """

    problem: str = ""
    token: str = ""
    roster: str = ""
    digest: str = ""
    copy: int = -1

    def to_bytes(self) -> bytes:
        """As the store has it."""
        return json.dumps(self).encode()

    @staticmethod
    def read(text: bytes) -> Outcome:
        """The outcome that the store has.

        Raises:
            DistStoreError: rank 0 wrote no such text.
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
