"""A host whose own name means 127.0.1.1 to itself, as Debian has it."""

import shutil
import subprocess
import sys
import textwrap

import pytest

from allhands.rendezvous.interfaces import addresses_here

NAME = "named-for-the-loopback"
PROGRAM = textwrap.dedent(
    f"""
    import socket

    import allhands as dist
    from allhands.rendezvous.address_choice import addresses_to_listen_at
    from allhands.rendezvous.interfaces import addresses_here

    store = dist.TCPStore("{NAME}", 0, is_master=True)
    outer = [a.address for a in addresses_here() if a.is_up and not a.is_loopback]
    for address in outer:
        socket.create_connection((address, store.port), 60).close()
    [chosen] = addresses_to_listen_at(store._route())
    assert chosen in outer, (chosen, outer)
    print("reached")
    """
)
# Of a mount namespace of its own, where the file of names is another.
IN_A_NAMESPACE = 'mount --bind "$1" /etc/hosts && shift && exec "$@"'


def test_others_reach_the_store_of_a_host_that_means_the_loopback_by_its_name(tmp_path):
    if not any(each.is_up and not each.is_loopback for each in addresses_here()):
        pytest.skip("this machine has no network")
    if shutil.which("unshare") is None:
        pytest.skip("no program unshare: install util-linux")
    hosts = tmp_path / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n127.0.1.1 {NAME}\n")
    unshare = ["unshare", "--mount", "sh", "-c", IN_A_NAMESPACE, "sh", str(hosts)]
    if subprocess.run([*unshare, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this user may make no mount namespace")
    ended = subprocess.run(
        [*unshare, sys.executable, "-c", PROGRAM],
        check=False,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert ended.stdout == "reached\n", ended.stderr
