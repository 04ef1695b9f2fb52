"""How a launcher gets the job's store, and the numbers of its ranks.

With one node it serves a store of its own; with several node 0 serves it, and the
launchers meet there. On the other nodes the launcher relays what its ranks ask.
"""

from __future__ import annotations

import socket
import sys
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import NamedTuple

from allhands import settings
from allhands._C import StoreRelay
from allhands.elastic.node import Node, NodeRoster
from allhands.elastic.node_meeting import compose, enter, join, leave, reach
from allhands.elastic.node_ranks import NodeRanks, ranks_of_nodes
from allhands.elastic.nodes import Nodes
from allhands.elastic.signals import ENDING_SIGNALS, SignalPipe, taken_signals
from allhands.store import PrefixStore, Store, TCPStore

__all__ = ["Joined", "alone", "among"]

# For the look-up of the store's address, should it be a name.
_STORE_LIMIT = timedelta(seconds=30)
# As a multiple of the heartbeat: launchers say nothing of a host before its ranks do.
_SILENCE = 2


class Joined(NamedTuple):
    """What a launcher knows once it may start its ranks."""

    node_ranks: NodeRanks
    run_id: str
    store_port: int
    master_port: int
    signals: SignalPipe | None
    """Signals to this process, see `taken_signals`. Until there was a meeting, they
    ended it."""
    nodes: Nodes | None
    """The launchers, where the job has several nodes."""
    store: Store | None = None
    """That store, if this launcher serves it to the only node."""
    relay: settings.Relay | None = None
    """Through which this node's ranks use the store, where another node serves it."""


@contextmanager
def alone(
    address: str,
    master_port: int,
    num_workers: int,
    run_id: str,
    ending: Collection[int] = ENDING_SIGNALS,
) -> Iterator[Joined]:
    """Have the store of a job with one node; the signals `ending` end it.

    Raises:
        DistNetworkError: it cannot listen at `address`, another process listens at
            `master_port` there.
    """
    # Hosted here, so that it outlives every rank.
    store = TCPStore(address, 0, is_master=True, timeout=_STORE_LIMIT)
    with _kept_free(address, master_port) as kept, taken_signals(ending) as signals:
        run_id = run_id or uuid.uuid4().hex
        ranks = NodeRanks.alone(num_workers)
        yield Joined(ranks, run_id, store.port, kept, signals, None, store)


@contextmanager
def among(
    address: str,
    port: int,
    me: Node,
    limit: float,
    ending: Collection[int] = ENDING_SIGNALS,
) -> Iterator[Joined]:
    """Meet the launchers of the other nodes, and keep in touch with them.

    The signals `ending` end the job.

    Raises:
        DistNetworkError: node 0 cannot listen at `address` and `port`; some did not
            come within `limit` seconds; or they were started for different jobs.
    """
    patience = settings.patience.get()
    if me.rank == 0:
        me = me._replace(run_id=me.run_id or uuid.uuid4().hex)
        served = TCPStore(address, port, is_master=True, timeout=_STORE_LIMIT)
        if not (settings.secret.get() or served._route().stays_here):
            _say(
                f"no secret: whoever can connect to {address}, port {port}, can take "
                f"part in the job. Set {settings.secret.name} to the same text on all "
                "nodes"
            )
        with _kept_free(address, 0) as master_port:
            store = PrefixStore("launchers", served)
            enter(store, me)
            roster = compose(store, me, master_port, limit, patience, _say)
            with _in_touch(store, roster, me.rank, port, ending) as joined:
                yield joined
        return
    store = PrefixStore("launchers", reach(address, port, me, limit, patience, _say))
    try:
        enter(store, me)
        roster = join(store, me, limit, patience, _say)
    except BaseException:
        leave(store, me)
        raise
    relay = StoreRelay(address, port, settings.secret.get(), limit)
    with _in_touch(store, roster, me.rank, port, ending) as joined:
        place = settings.Relay(relay.port, relay.own_address)
        yield joined._replace(relay=place)


@contextmanager
def _in_touch(
    store: Store, roster: NodeRoster, rank: int, port: int, ending: Collection[int]
) -> Iterator[Joined]:
    ranks = ranks_of_nodes(roster.nodes)[rank]
    silence = _SILENCE * settings.heartbeat.get()
    with (
        taken_signals(ending) as signals,
        Nodes(store, roster, rank, silence, signals) as nodes,
    ):
        yield Joined(ranks, roster.run_id, port, roster.master_port, signals, nodes)


def _say(line: str) -> None:
    sys.stderr.write(f"allhands run: {line}\n")
    sys.stderr.flush()


@contextmanager
def _kept_free(address: str, port: int) -> Iterator[int]:
    """`port`, or any for 0, on which a rank may listen, but no other job comes.

    Raises:
        DistNetworkError: another process listens there.
    """
    if port != 0:  # a store says who it is
        TCPStore(address, port, is_master=True, timeout=_STORE_LIMIT)
    [(family, kind, protocol, _, place), *_] = socket.getaddrinfo(
        address, port, type=socket.SOCK_STREAM
    )
    with socket.socket(family, kind, protocol) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(place)
        yield held.getsockname()[1]
