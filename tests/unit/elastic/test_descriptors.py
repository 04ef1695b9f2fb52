"""The file descriptors that the launcher counts on for the ranks it serves."""

import os
from dataclasses import replace

import pytest

from allhands.elastic.descriptors import num_held
from allhands.elastic.logs import DefaultLogsSpecs, Std
from allhands.elastic.node_ranks import NodeRanks
from allhands.elastic.output import Screen
from allhands.elastic.start import executing
from allhands.elastic.worker import Worker
from allhands.elastic.worker_spec import WorkerSpec
from allhands.rendezvous import presence
from allhands.store import TCPStore

RANKS = 3
ALONE = WorkerSpec(
    command=lambda local_rank: ["program"],
    node_ranks=NodeRanks.alone(RANKS),
    run_id="id",
    master_addr="127.0.0.1",
    master_port=5,
    store_port=6,
)
ELSEWHERE = replace(
    ALONE, node_ranks=NodeRanks.alone(RANKS)._replace(node=1, num_nodes=2)
)


def num_open() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_what_ranks_hold_at_the_store_while_they_meet_is_counted():
    streams_and_end = 3
    counted = num_held(ALONE) - RANKS * streams_and_end
    served = TCPStore("127.0.0.1", 0, is_master=True)
    before = num_open()
    ranks = [TCPStore("127.0.0.1", served.port) for _ in range(RANKS)]
    for number, store in enumerate(ranks):
        presence.enter(store, number)
    assert num_open() - before == 2 * counted  # both ends are in this process


def test_a_relay_holds_as_much_for_its_ranks():
    assert num_held(ELSEWHERE) == num_held(ALONE)


def test_node_0_counts_the_launchers_of_all_nodes_and_no_rank_elsewhere():
    far = ALONE.node_ranks._replace(world_size=RANKS + 100, num_nodes=3)
    assert num_held(replace(ALONE, node_ranks=far)) - num_held(ALONE) == 2 * 5


@pytest.mark.parametrize("tee", [Std.NONE, Std.OUT, Std.ALL])
def test_what_a_ranks_streams_take_is_counted(tmp_path, tee):
    job = replace(
        ELSEWHERE,
        command=lambda local_rank: ["/bin/cat"],
        logs=DefaultLogsSpecs(str(tmp_path), tee=tee),
        filters={Std.OUT: ["word"]},
    )
    screens = dict.fromkeys((Std.OUT, Std.ERR), Screen(1, False))
    before = num_open()
    worker = Worker(job, 1, 0, "mark", screens, executing(None))
    held = num_open() - before
    worker.close_streams()
    worker.reap()
    assert num_open() == before
    # And a descriptor to wait on, and two connections.
    assert RANKS * (held + 1 + 2) == num_held(job)
