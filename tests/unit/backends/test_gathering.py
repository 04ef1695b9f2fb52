"""Members of a group wait for each other, and learn who has died instead of coming."""

import subprocess
import sys
from datetime import timedelta

import pytest

from allhands import settings
from allhands.backends.communicator import CommunicatorOptions
from allhands.backends.gathering import await_members
from allhands.errors import DistStoreError, RankFailedError
from allhands.rendezvous.identity import Identity, process_identity
from allhands.rendezvous.roster import Roster
from allhands.store import HashStore

KEYS = ["here/0", "here/1", "here/2"]
ME = process_identity()


@pytest.fixture
def ended():
    """A process of this host that is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return Identity(ME.host, process.pid, 1)


def options_of(store, seconds, *members):
    """Those of the first of `members`, world ranks 3, 4, ..., in a group "trio"."""
    roster = Roster([ME] * 3 + list(members), b"")
    ranks = [3 + rank for rank in range(len(members))]
    timeout = timedelta(seconds=seconds)
    return CommunicatorOptions(
        store, 0, len(ranks), timeout, "trio", ranks, 0, lambda: roster
    )


def store_with(*ranks):
    store = HashStore()
    for rank in ranks:
        store.set(KEYS[rank], b"")
    return store


class LateStore(HashStore):
    """Does as if each of `coming` came after another wait that was in vain."""

    def __init__(self, *coming):
        super().__init__()
        self.coming = list(coming)

    def wait(self, keys, timeout=None):
        if self.coming:
            self.set(self.coming.pop(0), b"")
            raise DistStoreError("timed out")
        super().wait(keys, timeout)


def test_who_has_come_may_have_died_since(ended):
    store = LateStore(*KEYS)
    await_members(store, KEYS[:1], options_of(store, 30, ended), "mine")
    assert store.coming == KEYS[1:]  # it came while it was waited for
    store = LateStore("other", KEYS[2])
    for key in KEYS[:2]:
        store.set(key, b"")
    await_members(store, KEYS, options_of(store, 30, ME, ended, ME), "mine")
    assert store.coming == []


def test_who_died_before_it_came_is_named(ended):
    store = store_with(0, 1)
    options = options_of(store, 600, ME, ended, ended)
    with pytest.raises(RankFailedError) as caught:
        await_members(store, KEYS, options, "mine")
    assert caught.value.ranks == [2]
    assert str(caught.value) == (
        f"group 'trio' of backend mine cannot be made: it needs rank 2 (pid "
        f"{ended.pid}), which died before it came"
    )


def test_of_another_host_nobody_can_tell(ended):
    store = store_with(0, 1)
    there = ended._replace(host="elsewhere")
    options = options_of(store, 0.2, ME, there, there)
    with pytest.raises(DistStoreError, match=r"for rank \[2\], which did not come"):
        await_members(store, KEYS, options, "mine")


def test_a_long_wait_is_said(monkeypatch, capsys):
    monkeypatch.setenv(settings.patience.name, "0.05")
    store = store_with(0, 2)
    options = options_of(store, 2, ME, ME, ME)
    with pytest.raises(
        DistStoreError, match=r"for rank \[1\], .* backend mine: timed out"
    ):
        await_members(store, KEYS, options, "mine")
    [first, *_] = capsys.readouterr().err.splitlines()
    told = "allhands: [rank0] waiting: rank 0 (this process) has waited "
    assert first.startswith(told)


class LostStore(HashStore):
    """Its server has gone."""

    def wait(self, keys, timeout=None):
        raise DistStoreError("no connection")

    check = wait


def test_a_store_that_fails_is_not_asked_for_ever():
    store = LostStore()
    with pytest.raises(DistStoreError, match="no connection"):
        await_members(store, KEYS, options_of(store, 600, ME, ME, ME), "mine")
