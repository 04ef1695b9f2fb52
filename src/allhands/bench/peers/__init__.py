"""What is measured against what; each peer is one file here and one row of PEERS."""

from allhands.bench.peers.base import Absent, Peer
from allhands.bench.peers.gloo import Gloo
from allhands.bench.peers.mpi import Mpi
from allhands.bench.peers.native import Native
from allhands.bench.peers.sockets import Sockets

__all__ = ["FLOOR", "OURS", "PEERS", "Absent", "Peer"]

OURS, FLOOR = Native.name, Sockets.name
PEERS: dict[str, type[Peer]] = {
    peer.name: peer for peer in (Native, Gloo, Mpi, Sockets)
}
