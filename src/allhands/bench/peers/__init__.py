"""The peers that are measured; each peer has one file here and one row of PEERS."""

from allhands.bench.peers.base import Absent, Peer
from allhands.bench.peers.gloo import Gloo
from allhands.bench.peers.mpi import Mpi
from allhands.bench.peers.native import Native
from allhands.bench.peers.sockets import Sockets

__all__ = ["FLOOR", "OURS", "PEERS", "Absent", "Peer", "find_peer"]

OURS, FLOOR = Native.name, Sockets.name
PEERS: dict[str, type[Peer]] = {
    peer.name: peer for peer in (Native, Gloo, Mpi, Sockets)
}


def find_peer(name: str) -> type[Peer]:
    """Return the peer with this name, which may end in a colon and a form of the peer.

    Raises:
        ValueError: there is no such peer, or no such form of it.
    """
    known, _, form = name.partition(":")
    if known not in PEERS:
        raise ValueError(f"{known!r} is not known; want {', '.join(PEERS)}")
    return PEERS[known].variant(form) if form else PEERS[known]
