"""Who a process says that it is."""

import pytest

from allhands import _C, settings
from allhands.rendezvous.asked import Asked
from allhands.rendezvous.identity import (
    Identity,
    Introduction,
    is_alive,
    is_identity,
    process_identity,
)

OWN_HOST, _, START, _ = _C.process_identity()
NO_PID = 1 << 30  # above the largest


def test_it_is_known_by_its_host_pid_and_start():
    me = process_identity("10.0.0.3:4471")
    assert me == (*_C.process_identity()[:3], "10.0.0.3:4471")
    assert Introduction.read(3, Introduction(7, me).to_bytes()) == (7, me, Asked())


def test_a_process_is_looked_at_on_its_own_host_only():
    assert is_alive(process_identity())
    assert not is_alive(Identity(OWN_HOST, NO_PID, START))
    assert is_alive(Identity("another", NO_PID, START))


def test_a_host_id_makes_another_host_of_this_one(monkeypatch):
    monkeypatch.setenv("ALLHANDS_HOST_ID", "a")
    me = process_identity()
    assert me.host == f"{OWN_HOST}/a"
    assert is_identity(*me)
    assert not is_alive(me._replace(pid=NO_PID))
    assert is_alive(Identity(OWN_HOST, NO_PID, START))
    monkeypatch.setenv("ALLHANDS_HOST_ID", "b")
    assert process_identity().host not in (me.host, OWN_HOST)
    assert is_alive(me._replace(pid=NO_PID))


@pytest.mark.parametrize("text", ["a\nb", "größe", "x" * 256])
def test_a_host_id_that_is_none_is_refused(monkeypatch, text):
    monkeypatch.setenv("ALLHANDS_HOST_ID", text)
    with pytest.raises(ValueError, match="ALLHANDS_HOST_ID is "):
        settings.host_id.get()
