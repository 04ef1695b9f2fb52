"""The part of a store that one start of a job's ranks uses."""

from allhands.rendezvous.attempt import part_of_this_attempt
from allhands.store import HashStore


def test_each_start_has_a_part_of_its_own(monkeypatch):
    store = HashStore()
    monkeypatch.setenv("GROUP_WORLD_SIZE", "1")
    for attempt in ("0", "1"):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", attempt)
        part = part_of_this_attempt(store)
        assert not part.check(["k"])
        part.set("k", "v")
    assert sorted(store.list_keys()) == ["attempt_0/k", "attempt_1/k"]
    monkeypatch.delenv("TORCHELASTIC_RESTART_COUNT")
    monkeypatch.delenv("GROUP_WORLD_SIZE")
    assert part_of_this_attempt(store).check(["k"])


def test_counts_of_several_agents_mean_nothing(monkeypatch):
    store = HashStore()
    monkeypatch.setenv("GROUP_WORLD_SIZE", "2")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert part_of_this_attempt(store) is store


def test_counts_of_our_launchers_are_one(monkeypatch):
    store = HashStore()
    monkeypatch.setenv("GROUP_WORLD_SIZE", "2")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    monkeypatch.setenv("ALLHANDS_STORE", "127.0.0.1:1@2")
    part_of_this_attempt(store).set("k", "v")
    assert store.list_keys() == ["attempt_1/k"]
