"""HostLinks: a rank's connections to ranks of other hosts, for faults that cut them."""

from __future__ import annotations

from collections.abc import Sequence

from allhands import settings
from allhands.backends.faults import Fault
from allhands.rendezvous.ranges import in_ranges
from allhands.rendezvous.roster import Roster

__all__ = ["HostLinks"]


class HostLinks:
    """The connections of one rank to the ranks of other hosts. Immutable.

    Args:
        roster: the processes of the ranks.
        rank: this rank, in the roster.
        world_ranks: the world ranks of the roster's ranks, if they differ.
    """

    def __init__(
        self, roster: Roster, rank: int, world_ranks: Sequence[int] = ()
    ) -> None:
        ranks = world_ranks or range(len(roster.identities))
        self._by_rank = dict(zip(ranks, roster.identities, strict=True))
        self._here = roster.identities[rank].host
        self._port = roster.port.native

    def drop(self, peer: int | None) -> int:
        """Cut the connection to a rank of the world, or to all ranks of other hosts.

        Each connection continues over another socket. Returns the number of cuts.
        """
        if self._port is None:
            return 0
        return sum(
            self._port.break_socket(each.endpoints, each.pid, each.start)
            for rank, each in self._by_rank.items()
            if each.host != self._here and peer in (None, rank)
        )

    def check(self, fault: Fault) -> None:
        """Refuse a fault that can never happen here.

        Raises:
            ValueError: the fault is to drop a link that does not exist.
        """
        hosts = {rank: each.host for rank, each in self._by_rank.items()}
        ranks = in_ranges(sorted(hosts))
        if fault.do != "drop-link":
            return
        if len({*hosts.values()}) == 1:
            raise ValueError(
                f"a fault with do=drop-link cuts connections between hosts, and there "
                f"are none: {ranks} of this world are on one host; with another "
                f"{settings.host_id.name} each they count as on several"
            )
        peer = fault.peer
        if peer is not None and peer not in hosts:
            raise ValueError(
                f"do=drop-link:{peer} names no rank of this world, which has {ranks}"
            )
        own = hosts.get(fault.rank if fault.rank is not None else -1)
        if peer is not None and hosts[peer] == own:
            raise ValueError(
                f"do=drop-link:{peer}: there is no connection to cut, as rank "
                f"{fault.rank} and rank {peer} are on one host"
            )
