"""Roster: the processes of a world, as each rank knows them and as a stored value."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from allhands import _C, settings
from allhands.errors import DistNetworkError, DistStoreError
from allhands.rendezvous.endpoints import are_endpoints
from allhands.rendezvous.identity import PIDS, STARTS, Identity, is_host
from allhands.rendezvous.port import Port
from allhands.rendezvous.ranges import in_ranges

__all__ = ["Identity", "Roster", "composed", "decomposed"]

# Of its four parts, for the list of all ranks, which each of many makes. Identity's own
# way is a function of Python.
_identity = partial(tuple.__new__, Identity)


class Roster(NamedTuple):
    """The world as every rank sees it: identities by global rank, the job's token."""

    identities: list[Identity]
    token: bytes
    port: Port = Port()
    """Where ranks of other hosts reach this one, if there are any."""

    @property
    def mark(self) -> str:
        """Distinguishes its ranks from other worlds' ranks; a digest, not a secret."""
        return self.token_for("record").hex()[:16]

    @property
    def spans_hosts(self) -> bool:
        """Whether the ranks are on more than one host."""
        return len({each.host for each in self.identities}) > 1

    def port_for(self, ranks: Sequence[int]) -> _C.TcpPort | None:
        """Return the port for a group of `ranks` on several hosts; None on one host.

        Raises:
            DistNetworkError: some of the ranks do not listen.
        """
        members = [self.identities[rank] for rank in ranks]
        num_hosts = len({each.host for each in members})
        if num_hosts < 2:
            return None
        silent = [rank for rank in ranks if not self.identities[rank].endpoints]
        if not silent and self.port.native is not None:
            return self.port.native
        reason = self.port.problem or (
            "this rank does; their own errors say why they could not"
            if self.port.native is not None
            else "they met through a store of one host, or one launcher started all "
            f"of them. On every rank, set {settings.host_id.name} to the name of its "
            f"host and {settings.interfaces.name} to the name or network of an "
            f"interface that leads to the other hosts"
        )
        raise DistNetworkError(
            f"a group of {len(members)} ranks on {num_hosts} hosts has some that do "
            f"not listen for ranks of other hosts, {in_ranges(silent)}: {reason}"
        )

    def token_for(self, *parts: object) -> bytes:
        """Return a token for `parts` that only members of this job can make."""
        import hashlib  # some milliseconds that a mere import need not take

        key = hashlib.blake2b(key=self.token, digest_size=32)
        key.update(json.dumps(parts).encode())
        return key.digest()


def composed(identities: Sequence[Identity]) -> str:
    """Return the identities as one value: each host once, then columns by rank."""
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
    """Return the identities of `size` ranks.

    Raises:
        DistStoreError: `text` is not a value of `composed` for this number.
    """
    try:
        hosts, numbers, *columns = json.loads(text)
        _check(size, hosts, numbers, *columns)
    except (ValueError, TypeError, RecursionError):
        raise DistStoreError(
            f"what the store has as the list of this world's {size} ranks is none: "
            f"{text[:80]!r}"
        ) from None
    by_rank = [hosts[number] for number in numbers]
    return list(map(_identity, zip(by_rank, *columns, strict=True)))


def _check(
    size: int, hosts: Any, numbers: Any, pids: Any, starts: Any, endpoints: Any
) -> None:
    """Check column by column, because each of thousands of ranks checks all others.

    Raises:
        ValueError: no roster has these columns.
    """
    columns = (numbers, pids, starts, endpoints)
    kinds = (int, int, int, str)
    is_roster = (
        type(hosts) is list
        and all(map(is_host, hosts))
        and all(type(each) is list and len(each) == size for each in columns)
        and all({*map(type, c)} == {k} for c, k in zip(columns, kinds, strict=True))
        and 0 <= min(numbers) <= max(numbers) < len(hosts)
        and 0 < min(pids) <= max(pids) < PIDS
        and 0 <= min(starts) <= max(starts) < STARTS
        and all(map(are_endpoints, {*endpoints}))
    )
    if not is_roster:
        raise ValueError("no roster")
