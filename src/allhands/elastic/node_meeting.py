"""How the launchers of a job's nodes find each other in the store that node 0 serves.

Each presents its node there. Node 0 waits for all, and tells them who they are: from
then on every launcher knows the place of its ranks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta

from allhands.elastic.node import Node, NodeRoster
from allhands.elastic.report import some
from allhands.elastic.signs import BEAT, DIED
from allhands.errors import DistNetworkError, DistStoreError
from allhands.store import Store, TCPStore
from allhands.store.found import Found

__all__ = ["Say", "compose", "enter", "join", "leave", "reach"]

# For an answer of node 0's store: its host may stand still for a while.
_ANSWER_LIMIT_S = 30.0
_ROSTER = "roster"
_READ = "read/"
_LOOK_EVERY = timedelta(milliseconds=200)
# Before the store of a launcher that refuses the others goes.
_READING_LIMIT = timedelta(seconds=2)

Say = Callable[[str], None]
"""Shows a line to the user."""


def reach(
    address: str, port: int, me: Node, limit: float, patience: float, say: Say
) -> TCPStore:
    """The store that node 0 serves.

    Raises:
        DistNetworkError: it did not come within `limit` seconds, or is none of ours.
    """
    waiting = _Waiting(me, limit, patience, say)
    while True:
        try:
            # As long as nothing is to be said: an address that swallows packets, or a
            # slow look-up, must not take all the time of the next address.
            store = TCPStore(address, port, timeout=waiting.time_to_word)
        except DistNetworkError as error:
            reason = _reason_of_no_answer(error)
        else:
            store.set_timeout(timedelta(seconds=min(_ANSWER_LIMIT_S, limit)))
            return store
        waiting.go_on(
            f"node 0 at {address}, port {port} ({reason}): is `allhands run "
            f"--nnodes {me.num_nodes} --node-rank 0 --master-addr {address} "
            f"--master-port {port} ...` started there, and does a firewall let this "
            "host connect to that port?"
        )


def enter(store: Store, me: Node) -> None:
    """Present a node to the others.

    What tells of its end comes first, so that a launcher which dies amid this is never
    taken for one that is there.

    Raises:
        DistNetworkError: another launcher has done so for the same node.
    """
    key, died = f"node/{me.rank}", f"{DIED}{me.rank}"
    mine = me.to_bytes()
    found = store._look(key) or b""
    if found and store.check([died]):  # that one has ended
        found = store.compare_set(key, found, b"")
    if not found:
        store._leave_last_will(died, b"1")
        store.set(f"{BEAT}{me.rank}", b"0")
        found = store.compare_set(key, b"", mine)
        if found != mine:
            store._withdraw_last_will()
    if found != mine:
        other = Node.read(found)
        raise DistNetworkError(
            f"two launchers say that they are node {me.rank}: pid {other.pid} on host "
            f"{other.host}, and this one, pid {me.pid} on host {me.host}. Each node "
            "needs a --node-rank of its own, and each job a --master-port of its own"
        )


def leave(store: Store, me: Node) -> None:
    """Take it back, if this launcher has come so far: it ends before the job begins."""
    with suppress(DistNetworkError, DistStoreError):  # node 0 may be gone
        store.compare_set(f"node/{me.rank}", me.to_bytes(), b"")
        store._withdraw_last_will()


def compose(
    store: Store, me: Node, master_port: int, limit: float, patience: float, say: Say
) -> NodeRoster:
    """What node 0 does: wait for the others, and tell them who they are.

    Raises:
        DistNetworkError: some did not come within `limit` seconds, or they do not
            belong together.
    """
    try:
        nodes = _gather(store, me, limit, patience, say)
    except (DistNetworkError, DistStoreError) as error:
        _refuse(store, me, str(error))
        raise
    roster = NodeRoster(tuple(nodes), me.run_id, master_port)
    store.set(_ROSTER, roster.to_bytes())
    return roster


def join(store: Store, me: Node, limit: float, patience: float, say: Say) -> NodeRoster:
    """What the others do: wait for what node 0 tells.

    Raises:
        DistNetworkError: it did not within `limit` seconds, or refuses this node.
    """
    waiting = _Waiting(me, limit, patience, say)
    while True:
        try:
            text = store._get_within(_ROSTER, _LOOK_EVERY)
            break
        except DistStoreError:
            waiting.go_on("node 0, which waits for the others")
        except DistNetworkError as error:
            reason = _reason_of_no_answer(error)
            waiting.go_on(f"node 0, which does not answer ({reason})")
    roster = NodeRoster.read(text or b"")
    if roster.refusal:
        with suppress(DistNetworkError, DistStoreError):  # node 0 goes when it has it
            store.set(f"{_READ}{me.rank}", b"")
        raise DistNetworkError(f"node 0 does not start the job: {roster.refusal}")
    if me not in roster.nodes:
        raise DistNetworkError(
            f"the job at this --master-addr and --master-port has begun with "
            f"{len(roster.nodes)} nodes, and this launcher is none of them"
        )
    return roster


def _reason_of_no_answer(error: DistNetworkError) -> str:
    """Why node 0's store has not answered, which it may do later.

    Raises:
        DistNetworkError: it would not be another one later.
    """
    if "timed out" not in str(error):
        raise error
    return str(error).rpartition("): ")[2]


class _Waiting:
    """One launcher's patience."""

    def __init__(self, me: Node, limit: float, patience: float, say: Say) -> None:
        self._me, self._limit, self._say = me, limit, say
        self._begin = time.monotonic()
        self._patience = patience if patience > 0 else limit

    @property
    def time_to_word(self) -> timedelta:
        """Until `go_on` has something to say, or the limit has passed."""
        waited = time.monotonic() - self._begin
        left = min(self._patience, self._limit) - waited
        return max(timedelta(seconds=left), timedelta(milliseconds=1))

    def go_on(self, for_whom: str) -> None:
        """Say for whom, from time to time.

        Raises:
            DistNetworkError: the limit has passed.
        """
        waited = time.monotonic() - self._begin
        if waited >= self._limit:
            raise DistNetworkError(
                f"node {self._me.rank} has waited {self._limit:g} s for {for_whom}"
            )
        if waited >= self._patience:
            self._patience *= 2
            self._say(
                f"node {self._me.rank} has waited {waited:.0f} s (limit "
                f"{self._limit:g} s) for {for_whom}"
            )


def _gather(
    store: Store, me: Node, limit: float, patience: float, say: Say
) -> list[Node]:
    waiting = _Waiting(me, limit, patience, say)
    while True:
        present = _present(store, me.num_nodes)
        _check([*present.values()])
        missing = [node for node in range(me.num_nodes) if node not in present]
        if not missing:
            return [*present.values()]
        waiting.go_on(_who_is_missing(me, missing))
        _await(store, missing)


def _present(store: Store, num_nodes: int) -> dict[int, Node]:
    """The nodes whose launchers have come, and not ended."""
    # Asked first: who takes the place of one that has ended makes it empty before.
    died = store._survey(DIED, num_nodes)
    living = [node for node in range(num_nodes) if not died[node]]
    found = {node: store._look(f"node/{node}") for node in living}
    return {node: Node.read(text) for node, text in found.items() if text}


def _await(store: Store, missing: Sequence[int]) -> None:
    """Until those have come that never did; not for long."""
    keys = [f"node/{node}" for node in missing]
    if store.check(keys):  # all of them have come and ended
        time.sleep(_LOOK_EVERY.total_seconds())
        return
    with suppress(DistStoreError):
        store.wait(keys, _LOOK_EVERY)


def _who_is_missing(me: Node, missing: Sequence[int]) -> str:
    return (
        f"node {some(missing)} of {me.num_nodes}, which did not come: is `allhands "
        f"run --nnodes {me.num_nodes} --node-rank {missing[0]} ...` started there, "
        f"with the --master-addr and --master-port of node 0, and does a firewall let "
        f"it connect here?"
    )


def _check(nodes: Sequence[Node]) -> None:
    """Hold that they are of one job.

    Raises:
        DistNetworkError: they are not.
    """
    for option, values in (
        ("--nnodes", [node.num_nodes for node in nodes]),
        ("--max-restarts", [node.max_restarts for node in nodes]),
        ("--rdzv-id", [node.run_id for node in nodes]),
    ):
        by_value: dict[object, Node] = {}
        for node, value in zip(nodes, values, strict=True):
            if value != "":  # not given
                by_value.setdefault(value, node)
        if len(by_value) > 1:
            [(value, one), (other_value, other), *_] = by_value.items()
            raise DistNetworkError(
                f"the nodes were started with different {option}: {value} on {one}, "
                f"{other_value} on {other}; want the same on all"
            )


def _refuse(store: Store, me: Node, reason: str) -> None:
    """Let those who wait know why there will be no job."""
    came = store._survey("node/", me.num_nodes)
    died = store._survey(DIED, me.num_nodes)
    nodes = [
        node
        for node in range(1, me.num_nodes)
        if came[node] == Found.SOME_VALUE and not died[node]
    ]
    store.set(_ROSTER, NodeRoster((), "", 0, reason).to_bytes())
    with suppress(DistStoreError):  # some ended meanwhile
        store.wait([f"{_READ}{node}" for node in nodes], _READING_LIMIT)
