"""Ranks find the way between hosts that have misleading interfaces and names."""

import contextlib
import os
import subprocess
import sys

import pytest

from harness.decoys import mislead
from harness.fake_hosts import fake_hosts
from harness.launcher import program
from harness.nodes import launched_nodes, run_nodes
from harness.ranks import LIMIT

JOB = """
    import numpy as np
    import allhands as dist
    from allhands.groups.world import current

    dist.init_process_group()
    array = np.full(5, dist.get_rank() + 1.0)
    dist.all_reduce(array)
    assert (array == 10).all(), array
    print(*[each.endpoints for each in current().roster().identities])
    dist.destroy_process_group()
"""


@pytest.fixture
def hosts(tmp_path):
    with fake_hosts(2) as made:
        mislead(made, tmp_path)
        yield made


@contextlib.contextmanager
def two_networks():
    with fake_hosts(2) as hosts:
        hosts.add_network()
        yield hosts


def endpoints(hosts, path, **variables):
    """Where the ranks of a job listen, two on each host, which meet at a name."""
    place = {"MASTER_ADDR": "host0", "MASTER_PORT": "29500", "WORLD_SIZE": "4"}
    jobs = []
    for rank in range(4):
        environment = {**os.environ, **place, **variables, "RANK": str(rank)}
        command = hosts[rank // 2].enter(sys.executable, path)
        jobs.append(
            subprocess.Popen(
                command,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    said = [job.communicate(timeout=LIMIT) for job in jobs]
    assert [job.returncode for job in jobs] == [0] * 4, said
    assert len({output for output, _ in said}) == 1
    return said[0][0].split()


def test_the_ranks_of_a_host_share_its_interfaces(tmp_path):
    path = program(
        tmp_path,
        """
        import numpy as np
        import allhands as dist

        dist.init_process_group()
        array = np.ones(2_000_000, np.float32)
        dist.all_reduce(array)
        assert (array == 4).all()
        dist.destroy_process_group()
        """,
    )
    with two_networks() as hosts:
        ended = run_nodes([2, 2], path, hosts=hosts, ALLHANDS_INTERFACES="eth0,eth1")
        received = [hosts[1].num_received(name) for name in ("eth0", "eth1")]
    assert [(end.code, end.stderr) for end in ended] == [(0, "")] * 2
    assert min(received) > 4_000_000  # a slice of 4 MB each


def test_an_interface_that_leads_nowhere_is_passed_over(tmp_path):
    with two_networks() as hosts:
        hosts.switch.ip("link set br1 down")
        ended = run_nodes(
            [2, 2], program(tmp_path, JOB), hosts=hosts, ALLHANDS_INTERFACES="eth0,eth1"
        )
    assert [(end.code, end.stderr) for end in ended] == [(0, "")] * 2


def test_the_connections_of_an_interface_that_fails_take_another(tmp_path):
    flag = tmp_path / "flag"
    path = program(
        tmp_path,
        """
        import os, sys
        import numpy as np
        import allhands as dist

        dist.init_process_group()
        has_failed = np.zeros(1)
        for turn in range(1_000_000):
            array = np.ones(200_000, np.float32)
            dist.all_reduce(array)
            assert (array == 4).all()
            if has_failed[0]:
                break
            if turn == 3:
                print("under way", flush=True)
            has_failed[0] = os.path.exists(sys.argv[1])
            dist.broadcast(has_failed, 0)
        dist.destroy_process_group()
        """,
    )
    with (
        two_networks() as hosts,
        launched_nodes(
            *([2, 2], path, str(flag)),
            hosts=hosts,
            ALLHANDS_INTERFACES="eth0,eth1",
        ) as job,
    ):
        for node in range(2):
            job.read_until(node, "under way")
        hosts.switch.ip("link set br1 down")
        flag.touch()
        ended = job.end()
    assert [(end.code, end.stderr) for end in ended] == [(0, "")] * 2


def test_nothing_misleads_ranks_that_are_told_nothing(hosts, tmp_path):
    found = endpoints(hosts, program(tmp_path, JOB))
    addresses = [place.rpartition(":")[0] for place in found]
    assert addresses == ["10.99.0.1", "10.99.0.1", "10.99.0.2", "10.99.0.2"]


@pytest.mark.parametrize(
    "name", ["ALLHANDS_INTERFACES", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"]
)
def test_the_interface_and_the_ports_are_those_that_are_named(hosts, tmp_path, name):
    for number in range(2):
        hosts[number].ip(f"address add 10.98.0.{number + 1}/24 dev eth0 label eth0:1")
    named = {name: "10.98.0.0/16,=eth0:1", "ALLHANDS_PORT_RANGE": "29600-29601"}
    found = endpoints(hosts, program(tmp_path, JOB), **named)
    assert sorted(found) == [
        *("10.98.0.1:29600", "10.98.0.1:29601"),
        *("10.98.0.2:29600", "10.98.0.2:29601"),
    ]
