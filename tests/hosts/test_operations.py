"""Programs whose ranks are on several hosts: what they compute, and how they fail."""

import os
import signal
import subprocess
import sys
import time

import pytest

from harness.fake_hosts import fake_hosts
from harness.launcher import environment, program
from harness.nodes import launched_nodes, run_nodes
from harness.pace import patient
from harness.ranks import LIMIT

START = """
    import os, signal, sys, time
    import numpy as np
    import allhands as dist
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()

    def numbers(seed, count=1000):
        return np.random.default_rng(seed).random(count)
"""
COLLECTIVES = (
    START
    + """
    for count in (1, 1000, 300_000):
        inputs = [numbers(r, count) for r in range(size)]
        summed = inputs[0].copy()
        for each in inputs[1:]:
            summed += each
        mine = inputs[rank].copy()
        dist.all_reduce(mine)
        np.testing.assert_allclose(mine, summed, rtol=1e-12)
        everyone = [np.empty_like(mine) for _ in range(size)]
        dist.all_gather(everyone, mine)
        assert len({each.tobytes() for each in everyone}) == 1  # the same bits

        for root in range(size):
            array = inputs[rank].copy()
            dist.broadcast(array, src=root)
            np.testing.assert_array_equal(array, inputs[root])
            array = inputs[rank].copy()
            dist.reduce(array, dst=root, op=dist.ReduceOp.MAX)
            if rank == root:
                np.testing.assert_array_equal(array, np.max(inputs, axis=0))
            pieces = [inputs[root] + r for r in range(size)]
            array = np.empty(count)
            dist.scatter(array, pieces if rank == root else None, src=root)
            np.testing.assert_array_equal(array, pieces[rank])
            got = [np.empty(count) for _ in range(size)]
            dist.gather(inputs[rank], got if rank == root else None, dst=root)
            if rank == root:
                np.testing.assert_array_equal(got, inputs)

        got = [np.empty(count) for _ in range(size)]
        dist.all_to_all(got, [inputs[rank] + r for r in range(size)])
        np.testing.assert_array_equal(got, [each + rank for each in inputs])
        array = np.empty(count)
        dist.reduce_scatter(array, [inputs[rank] + r for r in range(size)])
        np.testing.assert_allclose(array, summed + size * rank, rtol=1e-12)
        dist.barrier()
    print("good")
"""
)
MESSAGES = (
    START
    + """
    left, right = (rank - 1) % size, (rank + 1) % size
    for count in (1, 1000, 1_000_000):
        got = np.empty(count)
        works = [dist.isend(numbers(rank, count), right), dist.irecv(got, left)]
        for work in works:
            work.wait()
        np.testing.assert_array_equal(got, numbers(left, count))
    if rank == 0:
        seen = set()
        for _ in range(size - 1):
            got = np.empty(2)
            source = dist.recv(got, tag=7)
            assert got[0] == source
            seen.add(source)
        assert seen == set(range(1, size))
    else:
        dist.send(np.full(2, float(rank)), 0, tag=7)
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank, "many": list(range(rank * 999))})
    assert [each["rank"] for each in objects] == list(range(size))
    shared = [{"from": rank}]
    dist.broadcast_object_list(shared, src=size - 1)
    assert shared == [{"from": size - 1}]

    everys = [dist.new_group(list(range(part, size, 2))) for part in range(2)]
    mine = np.array([float(rank)])
    dist.all_reduce(mine, group=everys[rank % 2])
    assert mine[0] == sum(range(rank % 2, size, 2))
    work = dist.all_reduce(mine, async_op=True)
    work.wait()
    print("good")
"""
)
PLACEMENTS = pytest.mark.parametrize("workers", [[1, 1], [2, 2], [1, 3], [1, 1, 1]])


@PLACEMENTS
@pytest.mark.parametrize(
    "text", [COLLECTIVES, MESSAGES], ids=["collectives", "messages"]
)
def test_results_on_hosts_of_this_machine(tmp_path, workers, text):
    ended = run_nodes(workers, program(tmp_path, text), ALLHANDS_SECRET="s")
    assert [(end.code, end.stderr) for end in ended] == [(0, "")] * len(workers)
    assert [end.stdout.count("good") for end in ended] == workers


@pytest.mark.parametrize(
    "text", [COLLECTIVES, MESSAGES], ids=["collectives", "messages"]
)
def test_results_on_hosts_with_a_network_between(tmp_path, text):
    with fake_hosts(2) as hosts:
        ended = run_nodes([1, 2], program(tmp_path, text), hosts=hosts)
    assert [(end.code, end.stderr) for end in ended] == [(0, "")] * 2
    assert [end.stdout.count("good") for end in ended] == [1, 2]


def test_a_host_gets_no_more_shares_than_its_ranks_need(tmp_path):
    text = (
        START
        + """
    given = np.repeat(np.arange(size) + 10.0 * rank, 256)  # 2 KiB for each rank
    got = np.empty_like(given)
    for _ in range(1000):
        dist.all_to_all_single(got, given)
    assert (got == np.repeat(10.0 * np.arange(size) + rank, 256)).all()
    dist.destroy_process_group()
    """
    )
    with fake_hosts(2) as hosts:
        ended = run_nodes([2, 2], program(tmp_path, text), hosts=hosts)
        received = hosts[1].num_received("eth0")
    assert [(end.code, end.stderr) for end in ended] == [(0, "")] * 2
    # Two ranks of the other host have a share for each of its own two.
    assert received < 1.5 * 1000 * 4 * 2048


def test_ranks_started_by_hand(tmp_path):
    path = program(tmp_path, COLLECTIVES)
    with fake_hosts(2) as hosts:
        place = {"WORLD_SIZE": "2", "MASTER_ADDR": hosts[0].address}
        ranks = [
            subprocess.Popen(
                hosts[rank].enter(sys.executable, path),
                env=environment(RANK=str(rank), MASTER_PORT="29500", **place),
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        told = [rank.communicate(timeout=LIMIT)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    assert told == ["good\n", "good\n"]


LOOP = """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # time to notice
    print("under way", rank, os.getpid(), flush=True)
    try:
        while True:
            dist.all_reduce(np.ones(10))
    except dist.RankFailedError as error:
        with open(f"{sys.argv[1]}/noticed{rank}", "w") as file:
            file.write(f"{time.monotonic()} {error.ranks}")
        raise
"""


def test_a_rank_killed_on_another_host_is_named_within_a_second(tmp_path):
    path = program(tmp_path, START + LOOP)
    with launched_nodes([2, 1], path, str(tmp_path), ALLHANDS_SECRET="s") as job:
        for _ in range(2):
            job.read_until(0, "under way")
        pid = int(job.read_until(1, "under way").split()[-1])
        killed = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        ended = job.end()
    assert [end.code for end in ended] == [137, 137]
    for end in ended:
        assert "allhands run: rank 2 failed: killed by SIGKILL" in end.stderr
    for rank in range(2):
        at, _, ranks = (tmp_path / f"noticed{rank}").read_text().partition(" ")
        assert ranks == "[2]"
        assert float(at) - killed < patient(1, killed)


@pytest.mark.parametrize("node", [0, 1])
def test_a_host_without_power_is_named_within_the_heartbeat(tmp_path, node):
    path = program(tmp_path, START + LOOP)
    with (
        fake_hosts(2) as hosts,
        launched_nodes([1, 1], path, str(tmp_path), hosts=hosts) as job,
    ):
        for each in range(2):
            job.read_until(each, "under way")
        off = time.monotonic()
        hosts.power_off(node)
        end = job.end_of(1 - node)
    assert end.code == 1
    at, _, ranks = (tmp_path / f"noticed{1 - node}").read_text().partition(" ")
    assert ranks == f"[{node}]"
    assert float(at) - off < patient(5 + 1, off)
    assert f"rank {node}" in end.stderr
