"""Large data between two hosts goes over several sockets, and several networks."""

import contextlib

import pytest

from harness.fake_hosts import fake_hosts
from harness.launcher import program
from harness.nodes import launched_nodes

MIB = 1 << 20
INTERFACES = ("eth0", "eth1")

# Goes on until there is the file that it is given.
STEPS = """
    import os, sys, time
    import numpy as np
    import allhands as dist

    dist.init_process_group()
    is_over = np.zeros(1)
    array = np.empty(16 << 20, np.float32)
    for turn in range(1_000_000):
        array[:] = turn
        before = time.monotonic()
        dist.all_reduce(array)
        took = time.monotonic() - before
        assert (array == 2 * turn).all(), "wrong data"
        if is_over[0]:
            break
        print(f"step {turn} took {took} s", flush=True)
        is_over[0] = os.path.exists(sys.argv[1])
        dist.broadcast(is_over, 0)
    dist.destroy_process_group()
"""


@contextlib.contextmanager
def job(tmp_path, text, *arguments, **variables):
    """One rank on each of two hosts with two networks, which both use."""
    with (
        fake_hosts(2) as hosts,
        contextlib.ExitStack() as stack,
    ):
        hosts.add_network()
        nodes = launched_nodes(
            *([1, 1], program(tmp_path, text), *arguments),
            hosts=hosts,
            ALLHANDS_INTERFACES=",".join(INTERFACES),
            **variables,
        )
        yield hosts, stack.enter_context(nodes)


def end_well(nodes):
    assert [(end.code, end.stderr) for end in nodes.end()] == [(0, "")] * 2


@pytest.mark.parametrize("number", ["1", "2"])
def test_large_data_is_shared_among_the_networks(tmp_path, number):
    text = """
        import numpy as np
        import allhands as dist

        dist.init_process_group()
        array = np.ones(16 << 20, np.float32)
        for turn in range(3):
            dist.all_reduce(array)
        assert (array == 8).all()
        print("done", flush=True)
        dist.barrier()
        dist.destroy_process_group()
        """
    with job(tmp_path, text, ALLHANDS_SOCKETS=number) as (hosts, nodes):
        nodes.read_until(0, "done")
        received = [hosts[1].num_received(name) for name in INTERFACES]
        end_well(nodes)
    if number == "1":
        assert received[1] < MIB
    else:
        assert min(received) > 0.25 * sum(received)


@pytest.mark.parametrize("network", ["br0", "br1"])
@pytest.mark.parametrize("is_encrypted", ["0", "1"])
def test_a_network_that_is_cut_amid_large_data_costs_seconds(
    tmp_path, network, is_encrypted
):
    flag = tmp_path / "flag"
    # Far longer than the test may take: only the other network shows who lives.
    variables = {"ALLHANDS_HEARTBEAT": "600", "ALLHANDS_TLS": is_encrypted}
    with job(tmp_path, STEPS, str(flag), ALLHANDS_SOCKETS="2", **variables) as made:
        hosts, nodes = made
        for node in range(2):
            nodes.read_until(node, "step 2 ")
        hosts.switch.ip(f"link set {network} down")
        while float(nodes.read_until(0, "took").split()[-2]) < 0.9:
            pass  # the step with the cut waits for the other network to be taken
        hosts.switch.ip(f"link set {network} up")  # for the store
        flag.touch()
        end_well(nodes)
