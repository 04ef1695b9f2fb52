"""A program's long waits in stores are reported, once and then ever more rarely."""

import re
from datetime import timedelta

import pytest

import allhands as dist
from allhands.groups import world as worlds
from allhands.groups.late_waits import LateWaits
from allhands.store import watch
from harness.stores import DictStore

PATIENCE = 0.2
LONG = timedelta(seconds=0.7)
STORES = {
    "HashStore": lambda tmp_path: dist.HashStore(),
    "FileStore": lambda tmp_path: dist.FileStore(str(tmp_path / "store")),
    "TCPStore": lambda tmp_path: dist.TCPStore("127.0.0.1", 0, is_master=True),
    "PrefixStore": lambda tmp_path: dist.PrefixStore("part", dist.HashStore()),
    "a store of the program": lambda tmp_path: DictStore(),
}


@pytest.fixture(autouse=True)
def world(monkeypatch):
    monkeypatch.setenv("ALLHANDS_PATIENCE", str(PATIENCE))
    with worlds.use(worlds.World()) as world:
        yield world


@pytest.fixture(params=STORES.values(), ids=STORES)
def store(request, tmp_path):
    store = request.param(tmp_path)
    store.set_timeout(LONG)
    return store


def reports(capsys):
    return [
        line
        for line in capsys.readouterr().err.splitlines()
        if line.startswith("allhands: [rank?] waiting: ")
    ]


def test_a_key_that_nobody_sets_is_named_while_the_program_waits(store, capsys):
    with pytest.raises(dist.DistStoreError):
        store.wait(["missing"])
    first, second = reports(capsys)
    for line, least in ((first, PATIENCE), (second, 2 * PATIENCE)):
        told = re.fullmatch(
            r".* wait\(\) of a store: this process has waited ([\d.]+) s "
            r"\(limit 0.7 s\) for key 'missing', which nobody has set "
            r"\(.*test_store_watch.py:\d+\)",
            line,
        )
        assert told, line
        assert least <= float(told[1]) <= LONG.total_seconds()


def test_so_is_one_that_get_waits_for(store, capsys):
    with pytest.raises(dist.DistStoreError):
        store.get("missing")
    line, _ = reports(capsys)
    assert "for key 'missing', which nobody has set (" in line


def test_of_many_keys_some_are_named(store, capsys):
    with pytest.raises(dist.DistStoreError):
        store.multi_get([f"k{number}" for number in range(5)])
    line, _ = reports(capsys)
    assert "for all of the keys 'k0', 'k1', 'k2' and 2 more (" in line


def test_a_barrier_is_named(store, capsys):
    with pytest.raises(dist.DistStoreError):
        store.barrier("gate", 2, LONG)
    line, _ = reports(capsys)
    assert "for others at barrier 'gate' (" in line


@pytest.mark.parametrize("name", ["HashStore", "FileStore", "TCPStore"])
def test_who_serves_a_queue_waits_on_purpose(name, tmp_path, capsys):
    store = STORES[name](tmp_path)
    store.set_timeout(2 * timedelta(seconds=PATIENCE))
    with pytest.raises(dist.DistStoreError):
        store.queue_pop("work")
    assert reports(capsys) == []


def test_who_asks_for_a_short_wait_knows_that_it_may_end_in_vain(store, capsys):
    for _ in range(4):
        with pytest.raises(dist.DistStoreError):
            store.wait(["missing"], timedelta(seconds=PATIENCE))
    assert reports(capsys) == []


def test_each_report_of_a_world_takes_twice_as_long(monkeypatch):
    monkeypatch.setenv("ALLHANDS_PATIENCE", "10")
    waits, limit = LateWaits(), 300.0
    assert not waits.is_due(9.9, limit)
    assert waits.is_due(10.1, limit)
    assert not waits.is_due(10.2, limit)
    assert not waits.is_due(19.9, limit)  # of another wait as well
    assert waits.is_due(20.1, limit)


def test_without_patience_there_is_no_report(monkeypatch):
    monkeypatch.setenv("ALLHANDS_PATIENCE", "0")
    assert not LateWaits().is_due(1e6, 1e9)


def test_waits_of_this_package_go_without(tmp_path, monkeypatch):
    store = STORES["TCPStore"](tmp_path)
    looks = []
    monkeypatch.setattr(watch, "_watches", [lambda *times: looks.append(times)])
    with pytest.raises(dist.DistStoreError):
        store._get_within("missing", timedelta(seconds=0.3))
    assert looks == []
    with pytest.raises(dist.DistStoreError):
        store.wait(["missing"], timedelta(seconds=0.3))
    assert looks
