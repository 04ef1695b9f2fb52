"""Who the ranks of a world are, as every rank knows it and as one value in a store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from allhands.errors import DistStoreError
from allhands.rendezvous.identity import Identity, is_identity

__all__ = ["Identity", "Roster", "composed", "decomposed"]


class Roster(NamedTuple):
    """The world as every rank sees it: identities by global rank, the job's token."""

    identities: list[Identity]
    token: bytes

    def token_for(self, *parts: object) -> bytes:
        """A token that only members of this job can make, for what `parts` name."""
        import hashlib  # some milliseconds that a mere import need not take

        key = hashlib.blake2b(key=self.token, digest_size=32)
        key.update(json.dumps(parts).encode())
        return key.digest()


def composed(identities: Sequence[Identity]) -> str:
    """The identities as one value: each host once, then columns by rank."""
    hosts = {each.host: 0 for each in identities}
    hosts = {host: number for number, host in enumerate(hosts)}
    columns = [
        list(hosts),
        [hosts[each.host] for each in identities],
        [each.pid for each in identities],
        [each.start for each in identities],
        [each.endpoints for each in identities],
    ]
    return json.dumps(columns, separators=(",", ":"))


def decomposed(text: str | bytes, size: int) -> list[Identity]:
    """The identities of `size` ranks.

    Raises:
        DistStoreError: `text` is not what `composed` makes of so many.
    """
    try:
        hosts, numbers, *columns = json.loads(text)
        identities = [
            Identity(hosts[number], pid, start, endpoints)
            for number, pid, start, endpoints in zip(numbers, *columns, strict=True)
            if number >= 0
        ]
    except (ValueError, TypeError, LookupError, RecursionError):
        identities = []
    if len(identities) != size or not all(is_identity(*each) for each in identities):
        raise DistStoreError(
            f"what the store has as the list of this world's {size} ranks is none: "
            f"{text[:80]!r}"
        )
    return identities
