"""A bad wire between fake hosts: late, lossy, or with a firewall.

`FakeHosts.lay_wire` runs this as a program in the network of the switch, in place of
the bridge. Frames go from any port to all others, so a host hears what is for others,
too, and passes over it. They may be as long as 64 KiB, as only network cards cut them,
and there is none here.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import random
import select
import socket
import struct
import sys
import time

_SOL_PACKET, _PACKET_VNET_HDR, _PACKET_IGNORE_OUTGOING = 263, 15, 23
_SO_RCVBUFFORCE = 33
_ALL_PROTOCOLS = 3
_HEADER = 10  # bytes before each frame: what is left for a card to do with it
_MOST = _HEADER + 65536 + 64
_TURNS = 64  # frames of one port before the next has its turn


def _opened(name: str) -> socket.socket:
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    port.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
    port.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    port.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 64 << 20)
    port.bind((name, _ALL_PROTOCOLS))
    port.setblocking(False)
    return port


class Wire:
    """What is between the ports, named as the interfaces of this network are.

    Args:
        names: the ports.
        delay: seconds that each frame is on its way.
        jitter: up to so many seconds more, by chance; frames never overtake each other.
        loss: the share of the frames that is lost.
        open_ports: the only ones to which TCP connections may be made; None: any.
        seed: of what happens by chance.
    """

    def __init__(
        self,
        names: list[str],
        delay: float,
        jitter: float,
        loss: float,
        open_ports: set[int] | None,
        seed: str,
    ) -> None:
        self._ports = [_opened(name) for name in names]
        self._delay, self._jitter, self._loss = delay, jitter, loss
        self._open_ports = open_ports
        self._random = random.Random(seed)
        self._under_way: dict[tuple[int, int], collections.deque[tuple[float, bytes]]]
        self._under_way = {
            pair: collections.deque()
            for pair in itertools.permutations(range(len(names)), 2)
        }

    def carry(self) -> None:
        """Carry frames until stdin ends."""
        poller = select.poll()
        numbers = {port.fileno(): i for i, port in enumerate(self._ports)}
        for fd in (*numbers, sys.stdin.fileno()):
            poller.register(fd, select.POLLIN)
        while True:
            due = min((way[0][0] for way in self._under_way.values() if way), default=0)
            wait = max(0.0, due - time.monotonic()) * 1000 if due else None
            for fd, _ in poller.poll(wait):
                if fd not in numbers:
                    return
                self._take(numbers[fd])
            self._deliver()

    def _take(self, sender: int) -> None:
        for _ in range(_TURNS):
            try:
                frame = self._ports[sender].recv(_MOST)
            except BlockingIOError:
                return
            if self._is_refused(frame):
                continue
            for (one, _), way in self._under_way.items():
                if one != sender or self._random.random() < self._loss:
                    continue
                due = time.monotonic() + self._delay
                due += self._random.random() * self._jitter
                way.append((max(due, way[-1][0]) if way else due, frame))

    def _is_refused(self, frame: bytes) -> bool:
        """Whether it would make a connection to a port that is not open."""
        packet = frame[_HEADER:]
        if self._open_ports is None or packet[12:14] != b"\x08\x00" or packet[23] != 6:
            return False
        segment = packet[14 + 4 * (packet[14] & 15) :]
        [port] = struct.unpack("!H", segment[2:4])
        is_first = segment[13] & 0x12 == 0x02  # SYN without ACK
        return is_first and port not in self._open_ports

    def _deliver(self) -> None:
        now = time.monotonic()
        for (_, receiver), way in self._under_way.items():
            while way and way[0][0] <= now:
                _, frame = way.popleft()
                try:
                    self._ports[receiver].send(frame)
                except OSError:  # its cable is out, or it has no room: it is lost
                    continue


def _ports_of(text: str) -> set[int]:
    """Of "29500,29600-29609"."""
    ends = [part.split("-") for part in text.split(",")]
    return {port for end in ends for port in range(int(end[0]), int(end[-1]) + 1)}


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+")
    for name in ("--delay", "--jitter", "--loss"):
        parser.add_argument(name, type=float, default=0.0)
    parser.add_argument("--open-ports", type=_ports_of)
    parser.add_argument("--seed", default="")
    wire = Wire(**vars(parser.parse_args()))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    wire.carry()


if __name__ == "__main__":
    _main()
