"""Launchers on hosts that fail as hosts do: silently."""

import time

import pytest

from harness.explained import explained
from harness.fake_hosts import fake_hosts
from harness.launcher import program
from harness.nodes import launched_nodes, run_nodes
from harness.pace import patient

MEET = """
    import os, sys, time
    import allhands as dist
    store, rank, size = next(dist.rendezvous("env://"))
    store.set(f"came{rank}", "")
    store.wait([f"came{other}" for other in range(size)])
"""
STAY = """
    print("under way", flush=True)
    while True:
        time.sleep(0.05)
"""


def test_ranks_of_several_hosts_meet(tmp_path):
    path = program(tmp_path, MEET + '    print("met", os.uname().nodename)\n')
    with fake_hosts(3) as hosts:
        ended = run_nodes([1, 2, 1], path, hosts=hosts)
    assert [(end.code, end.stderr) for end in ended] == [(0, "")] * 3
    assert [sorted(end.stdout.splitlines()) for end in ended] == [
        ["[rank0] met host0"],
        ["[rank1] met host1", "[rank2] met host1"],
        ["[rank3] met host2"],
    ]


@pytest.mark.parametrize("node", [0, 1])
@pytest.mark.parametrize("is_cut", [False, True], ids=["power off", "one-way cut"])
def test_a_silent_host_is_lost(tmp_path, node, is_cut):
    path = program(tmp_path, MEET + STAY)
    with (
        fake_hosts(2) as hosts,
        launched_nodes([1, 1], path, hosts=hosts, ALLHANDS_HEARTBEAT="3") as job,
    ):
        for other in range(2):
            job.read_until(other, "under way")
        if is_cut:
            hosts.cut(node, 1 - node)
        else:
            hosts.power_off(node)
        lost = time.monotonic()
        end = job.end_of(1 - node)
        assert time.monotonic() - lost < 6 + patient(8, lost)
    assert end.code == 1
    reason = ("its launcher has not answered", "node 0 has heard nothing of it")[node]
    explained(reason, end.stderr)
    assert f"allhands run: node {node} (host host{node}) is lost: {reason}" in (
        end.stderr
    )


def test_a_cable_that_is_back_in_time_ends_nothing(tmp_path):
    text = """
    print("under way", flush=True)
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
    store.set(f"end{rank}", "")
    store.wait([f"end{other}" for other in range(size)])
    """
    flag = tmp_path / "flag"
    path = program(tmp_path, MEET + text)
    with (
        fake_hosts(2) as hosts,
        launched_nodes([1, 1], path, str(flag), hosts=hosts) as job,
    ):
        for node in range(2):
            job.read_until(node, "under way")
        hosts.unplug(1)
        time.sleep(2)  # a fifth of what ends the job
        hosts.plug(1)
        flag.touch()
        ended = job.end()
    assert [(end.code, end.stderr) for end in ended] == [(0, "")] * 2


def test_a_node_0_that_is_not_there_is_told(tmp_path):
    """Nothing comes back from its host, as through a firewall that drops."""
    path = program(tmp_path, "print('no')")
    with fake_hosts(2) as hosts:
        hosts.cut(0, 1)
        ended = run_nodes([1, 1], "--rdzv-conf=timeout=2", path, hosts=hosts)
    assert [end.code for end in ended] == [1, 1]
    explained("node 0 at ..., port ... (...: Connection timed out)", ended[1].stderr)
