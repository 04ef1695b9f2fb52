"""Large data between two hosts goes by UCX, over a network of its own that may fail."""

import contextlib

import pytest

from harness.fake_hosts import fake_hosts
from harness.launcher import program
from harness.nodes import launched_nodes
from harness.ucx import with_ucx

pytestmark = with_ucx

# Ends after the turn in which there is the file that it is given.
STEPS = """
    import os, sys
    import numpy as np
    import allhands as dist
    from allhands.groups.world import current

    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    port = current().roster().port.native
    is_over = np.zeros(1)
    array = np.empty(4 << 20, np.float32)
    mine = np.empty(1 << 20, np.int64)
    for turn in range(1_000_000):
        array[:] = turn + rank
        dist.all_reduce(array)
        assert (array == size * turn + sum(range(size))).all(), "wrong data"
        mine[:] = turn * size + rank
        came = np.zeros_like(mine)
        peer = (rank + size // 2) % size
        sent = dist.isend(mine, peer)
        dist.recv(came, peer)
        sent.wait()
        assert (came == turn * size + peer).all(), "wrong data"
        print(f"turn {turn} bodies {port.num_sent_by_ucx()}", flush=True)
        if is_over[0]:
            break
        is_over[0] = os.path.exists(sys.argv[1])
        dist.broadcast(is_over, 0)
    dist.destroy_process_group()
"""


@contextlib.contextmanager
def job(flag, tmp_path, ranks):
    """So many ranks on each of two hosts, whose UCX has the second network."""
    with fake_hosts(2) as hosts:
        hosts.add_network()
        for host in hosts.hosts:  # UCX looks for interfaces in /sys
            host.run("mount", "-t", "sysfs", "sysfs", "/sys")
        nodes = launched_nodes(
            *([ranks, ranks], program(tmp_path, STEPS), str(flag)),
            hosts=hosts,
            ALLHANDS_INTERFACES="eth0",
            ALLHANDS_TRANSPORT="ucx",
            UCX_TLS="tcp",
            UCX_NET_DEVICES="eth1",
            UCX_LOG_LEVEL="fatal",  # its errors would go to stdout
        )
        with nodes as launched:
            yield hosts, launched


def num_bodies(nodes, node):
    return int(nodes.read_until(node, "bodies").split()[-1])


def test_large_data_goes_by_ucx_over_its_own_network(tmp_path):
    flag = tmp_path / "flag"
    with job(flag, tmp_path, 1) as (hosts, nodes):
        counts = [num_bodies(nodes, 0) for _ in range(3)]
        assert counts[0] < counts[1] < counts[2]
        first, second = (hosts[1].num_received(name) for name in ("eth0", "eth1"))
        flag.touch()
        assert [(end.code, end.stderr) for end in nodes.end()] == [(0, "")] * 2
    assert first < 0.1 * second


@pytest.mark.parametrize("ranks", [1, 2])
def test_ucx_that_fails_amid_large_data_costs_no_more_than_time(tmp_path, ranks):
    flag = tmp_path / "flag"
    with job(flag, tmp_path, ranks) as (hosts, nodes):
        for node in range(2):
            nodes.read_until(node, "turn 2 ")
        assert hosts[0].break_connections_to("10.98.0.0/24") > 0
        counts = [num_bodies(nodes, 0)]
        # Until all go over the connections.
        while len(counts) < 2 * ranks or len(set(counts[-2 * ranks :])) > ranks:
            counts.append(num_bodies(nodes, 0))
        flag.touch()
        ends = nodes.end()
    for end in ends:
        assert end.code == 0
        lines = end.stderr.splitlines()
        # Once for each rank of the other host.
        assert 0 < len(lines) <= ranks * ranks
        for line in lines:
            assert "network: UCX is given up for the process at 10.99.0." in line
            assert "large messages go over the connection" in line
