"""How many nodes a job has, which of them this is, and where they meet."""

from __future__ import annotations

import argparse
from typing import NamedTuple

__all__ = [
    "KNOWN_BACKENDS",
    "NodeOptions",
    "limit_of",
    "node_options_of",
    "split_endpoint",
]

# The defaults of torchrun.
_DEFAULT_PORT = 29500
_DEFAULT_LIMIT = "600"

KNOWN_BACKENDS = ("static", "c10d", "etcd", "etcd-v2")
"""Torchrun's. One node meets no other, so that none of them has an effect there."""


class NodeOptions(NamedTuple):
    """Where this launcher meets those of the other nodes, if there are any."""

    num_nodes: int = 1
    node_rank: int = 0
    address: str = "127.0.0.1"
    port: int = 0
    """Of the store, at node 0. With one node MASTER_PORT of the ranks; 0: any."""
    limit: float = float(_DEFAULT_LIMIT)
    """Seconds that nodes wait for each other."""


def node_options_of(args: argparse.Namespace) -> NodeOptions:
    """Return what a command line says of the nodes.

    Raises:
        ValueError: it cannot be; the options exclude each other, or one is missing.
    """
    num_nodes = _num_nodes(args.nnodes)
    _check_node_rank(args.node_rank, num_nodes)
    given = _configuration(args.rdzv_conf).get("timeout", _DEFAULT_LIMIT)
    limit = limit_of(given, "--rdzv-conf")
    address, port = args.master_addr, args.master_port
    if num_nodes > 1:
        _check_several(args)
        address, port = _place(args)
    elif not args.standalone and args.rdzv_backend not in KNOWN_BACKENDS:
        raise ValueError(
            f"--rdzv-backend is {args.rdzv_backend!r}; want one of "
            f"{', '.join(KNOWN_BACKENDS)}. With one node it has no effect: leave it out"
        )
    address = (address or "127.0.0.1").strip("[]")
    return NodeOptions(num_nodes, args.node_rank, address, port, limit)


def split_endpoint(endpoint: str) -> tuple[str, int]:
    """Return host and port of `host:port`; the port is 0 where there is none."""
    host, _, port = endpoint.rpartition(":")
    return (host, int(port)) if port.isdecimal() else (endpoint, 0)


def _num_nodes(given: str) -> int:
    fewest, colon, most = given.partition(":")
    numbers = [fewest, most] if colon else [fewest]
    if not all(number.isdecimal() and int(number) >= 1 for number in numbers):
        raise ValueError(f"--nnodes is {given!r}; want a number from 1 up")
    if len({int(number) for number in numbers}) > 1:
        raise ValueError(
            f"--nnodes is {given}: a job has as many nodes from its start to its end; "
            f"nodes that come and go are not there yet. Give one number, and each node "
            f"its --node-rank"
        )
    return int(fewest)


def _check_node_rank(node_rank: int, num_nodes: int) -> None:
    if not 0 <= node_rank < num_nodes:
        want = "0" if num_nodes == 1 else f"a number from 0 to {num_nodes - 1}"
        raise ValueError(
            f"--node-rank is {node_rank}; with --nnodes {num_nodes} it must be {want}"
        )


def limit_of(given: object, spelled: str) -> float:
    """Return how long nodes wait for each other, in seconds.

    Args:
        given: a number, or the text of one.
        spelled: where the user has written it.

    Raises:
        ValueError: it is no such time.
    """
    try:
        limit = float(given)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        limit = 0
    if not 0 < limit < float("inf"):
        raise ValueError(f"{spelled}: timeout is {given!r}; want seconds, above 0")
    return limit


def _configuration(given: str) -> dict[str, str]:
    """Return the pairs of --rdzv-conf; torchrun's other keys mean nothing here."""
    if not given.strip():
        return {}
    pairs = [pair.partition("=") for pair in given.split(",")]
    if not all(key.strip() and value.strip() for key, _, value in pairs):
        raise ValueError(
            f"--rdzv-conf is {given!r}; want key=value, with commas between several, "
            "such as timeout=60"
        )
    return {key.strip(): value.strip() for key, _, value in pairs}


def _check_several(args: argparse.Namespace) -> None:
    if args.standalone:
        raise ValueError(f"--standalone and --nnodes {args.nnodes} exclude each other")
    if args.rdzv_backend != "static":
        raise ValueError(
            f"--rdzv-backend is {args.rdzv_backend}; with --nnodes {args.nnodes} want "
            "static, and on each node --node-rank, --master-addr and --master-port"
        )


def _place(args: argparse.Namespace) -> tuple[str, int]:
    """Return address and port at which several nodes meet."""
    address, port = args.master_addr, args.master_port
    if args.rdzv_endpoint and not address:
        address, given_port = split_endpoint(args.rdzv_endpoint)
        port = given_port or port
    if not address:
        raise ValueError(
            f"--nnodes {args.nnodes} needs --master-addr: a name or address of node "
            "0's host that the other hosts can reach"
        )
    return address, port or _DEFAULT_PORT
