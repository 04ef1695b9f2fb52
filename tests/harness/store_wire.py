"""The TCP store's protocol, written a second time, for tests that break its rules.

csrc/allhands/store/handshake.hpp and message.hpp say what the bytes are.
"""

import hashlib
import hmac
import os
import socket
import struct

from harness.ranks import LIMIT

OPS = range(1, 24)
SET, GET, QUEUE_PUSH, QUEUE_POP, CANCEL = 1, 2, 13, 14, 19


def hello(nonce=None, version=4, flags=0):
    nonce = os.urandom(32) if nonce is None else nonce
    return struct.pack("<8sII16s32s", b"ahstore\n", version, flags, bytes(16), nonce)


def proof(side, secret, client_hello, server_hello):
    text = b"allhands store " + side + client_hello + server_hello
    return hmac.digest(secret, text, hashlib.sha256)


def message(code, *fields, number=0, count=None, lengths=None):
    """A message; `count` and `lengths` may lie."""
    count = len(fields) if count is None else count
    lengths = [len(field) for field in fields] if lengths is None else lengths
    head = struct.pack("<IIq", code, count, number)
    return head + struct.pack(f"<{len(lengths)}I", *lengths) + b"".join(fields)


def receive(peer, count):
    data = b""
    while len(data) < count and (more := peer.recv(count - len(data))):
        data += more
    return data


def shake_hands(peer, secret=b""):
    """The client's part; what the server sent as verdict and as proof, and its due."""
    ours = hello(flags=1 if secret else 0)
    peer.sendall(ours)
    theirs = receive(peer, 64)
    peer.sendall(proof(b"client", secret, ours, theirs))
    answer = receive(peer, 36)
    return answer[:4], answer[4:], proof(b"server", secret, ours, theirs)


def connect(port):
    peer = socket.create_connection(("127.0.0.1", port), timeout=LIMIT)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peer
