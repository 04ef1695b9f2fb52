"""Faults on demand: what their texts mean, and what is said of texts that mean none."""

import re
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from allhands.backends.call import OPERATIONS
from allhands.backends.fault_text import parse
from allhands.backends.faults import Fault, Faults
from allhands.errors import InjectedError
from harness.documents import ROOT
from harness.ranks import LIMIT


def test_what_a_text_asks_for():
    text = "rank=1, op=all_reduce, nth=5, do=kill; do=delay:1.5ms,group=dp,nth=2-;"
    assert parse(text, "it") == (
        Fault("kill", rank=1, op="all_reduce", first=5, last=5),
        Fault("delay", 0.0015, group="dp", first=2),
    )
    [fault] = parse("nth=3-4,attempt=0,do=stop", "it")
    assert (fault.first, fault.last, fault.attempt) == (3, 4, 0)
    [one, all_] = parse("op=send,do=drop-link:3;do=drop-link", "it")
    assert (one.do, one.peer, all_.peer) == ("drop-link", 3, None)
    [fault] = parse("op=store.compare_set,nth=2-,do=raise", "it")
    assert fault.op == "store.compare_set"
    [fault] = parse("after=1.5ms,do=stop", "it")
    assert fault.after == 0.0015
    [none, some] = parse("do=exit:0;do=exit:255", "it")
    assert (none.do, none.code, some.code) == ("exit", 0, 255)
    assert parse(" ; ", "it") == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kill", "'kill' is not key=value"),
        ("do=", "'do=' is not key=value"),
        ("rank=1", "'rank=1' has no do="),
        ("who=1,do=kill", "there is no key 'who', only rank, op, group, nth, attempt"),
        ("do=kill,rank=1,do=stop", "'do' is there twice in 'do=kill,rank=1,do=stop'"),
        ("do=die", "do=die is not kill, stop, raise, drop-link, exit with a code, as "),
        ("do=exit", "do=exit is not kill, stop, raise, drop-link, exit with a code"),
        ("do=exit:", "exit= is no number"),
        ("do=exit:-1", "exit=-1 is no number"),
        ("do=exit:256", "do=exit:256 is more than 255"),
        ("do=drop-link:", "drop-link= is no number"),
        ("do=drop-link:b", "drop-link=b is no number"),
        ("do=drop-link,op=store.get", "do=drop-link cuts connections between ranks, "),
        ("do=drop-link,op=init_process_group", "do=drop-link cuts connections betwe"),
        ("do=raise,op=store.get,group=dp", "op=store.get is of no group; leave group"),
        ("do=raise,op=store.gte", "there is no op 'store.gte', perhaps store.get"),
        ("do=delay:5", "do=delay:5 is no time with its unit, as do=delay:200ms; uni"),
        ("do=delay:1e5s", "do=delay:1e5s is no time with its unit"),
        ("do=kill,after=5", "after=5 is no time with its unit, as after=200ms; units "),
        ("do=kill,after=99999999999s", "after=99999999999s is more than 92"),
        ("do=raise,after=1s", "do=raise is done before the operation begins; leave a"),
        ("do=delay:1s,after=1s", "do=delay is done before the operation begins; leav"),
        ("do=delay:99999999999s", "do=delay:99999999999s is more than 92"),
        ("do=kill,nth=0", "nth=0 counts from 1, the first not above the last"),
        ("do=kill,nth=5-4", "nth=5-4 counts from 1"),
        ("do=kill,nth=-4", "nth= is no number"),
        ("do=kill,rank=one", "rank=one is no number"),
        ("do=kill,rank=²", "rank=² is no number"),
        ("do=kill,op=isend", "there is no op 'isend', perhaps send;"),
        (
            "do=kill,op=monitored_barrier",
            "there is no op 'monitored_barrier', perhaps barrier;",
        ),
        (
            "do=kill,op=reduce_scatter_tensor",
            "there is no op 'reduce_scatter_tensor', perhaps reduce_scatter_single;",
        ),
        ("do=kill,op=get", "there is no op 'get', perhaps store.get;"),
        ("do=kill,op=allreduce", "there is no op 'allreduce', perhaps all_reduce"),
        ("do=kill,op=xyz", "there is no op 'xyz', only all_reduce, reduce, reduce_s"),
    ],
)
def test_a_text_that_asks_for_nothing_is_refused(text, problem):
    with pytest.raises(ValueError, match=re.escape(f"it is {text!r}: {problem}")) as e:
        parse(text, "it")
    assert str(e.value).endswith("'rank=1,op=all_reduce,nth=5,do=kill'")


def test_only_what_is_meant_is_counted():
    asked = Faults(parse("rank=1,op=barrier,group=dp,nth=2-3,do=raise", "it"))
    for rank, group, op in [(0, "dp", "barrier"), (1, "tp", "barrier")]:
        asked.meet(rank, [group], op)
    asked.meet(1, ["dp"], "send")
    met = []
    for number in range(1, 6):
        try:
            asked.meet(1, ["7", "dp"], "barrier")
        except InjectedError as error:
            met.append((number, str(error)))
    assert met == [
        (number, f"fault on demand: rank 1, barrier, call {number}: do=raise")
        for number in (2, 3)
    ]
    assert asked.num_done == 2


def test_a_link_is_dropped_by_who_has_them(capfd):
    cut, left = [], [0, 2]

    def drop(peer):
        cut.append(peer)
        return left.pop(0) if left else 2

    asked = Faults(parse("op=send,do=drop-link:3", "it"))
    for _ in range(3):
        asked.meet(0, ["0"], "send", drop)
    assert cut == [3, 3, 3]
    assert asked.num_done == 2  # the first time there was none
    assert capfd.readouterr().err.splitlines() == [
        f"allhands: [rank0] faults: fault on demand: rank 0, send, call {number}: "
        f"do=drop-link ({count} connections cut)"
        for number, count in ((1, 0), (2, 2))
    ]


def test_what_is_asked_for_later_happens_beside_the_operation(capfd):
    begin = threading.Event()

    def drop(_):
        assert begin.wait(LIMIT)
        return 1

    asked = Faults(parse("nth=2,after=1us,do=drop-link", "it"))
    for _ in range(3):
        asked.meet(0, ["0"], "send", drop)
    assert asked.num_done == 0
    [other] = [each for each in threading.enumerate() if each.name == "allhands fault"]
    begin.set()
    other.join(LIMIT)
    assert asked.num_done == 1
    told = "rank 0, send, call 2, after 1e-06s: do=drop-link (1 connections cut)\n"
    assert capfd.readouterr().err.endswith(told)


def test_requests_to_stores_are_met_by_their_names_alone():
    asked = Faults(parse("nth=1,do=raise; op=store.get,nth=2,do=raise", "it"))
    asked.meet(0, [], "store.get")
    with pytest.raises(InjectedError, match=r"rank 0, store\.get, call 2"):
        asked.meet(0, [], "store.get")
    with pytest.raises(InjectedError, match="rank 0, send, call 1"):
        asked.meet(0, ["0"], "send")


def test_what_is_done_is_counted_under_the_lock():
    class Watched(Faults):
        def __setattr__(self, name, value):
            if name == "num_done" and value:
                assert not others.submit(self._lock.acquire, blocking=False).result()
            super().__setattr__(name, value)

    with ThreadPoolExecutor(1) as others:
        asked = Watched(parse("do=delay:0us", "it"))
        asked.meet(0, ["0"], "barrier")
    assert asked.num_done == 1


def test_a_signal_may_begin_an_operation_amid_another():
    class Names(list):
        """A group's; while one of them is looked for, a signal comes."""

        def __contains__(self, name):
            signal.raise_signal(signal.SIGUSR1)
            return super().__contains__(name)

    def begin_another(*_):
        is_free = asked._lock.acquire(timeout=20)  # not for ever
        was_free.append(is_free)
        if is_free:
            asked._lock.release()
            asked.meet(0, ["dp"], "send")

    asked, was_free = Faults(parse("group=dp,nth=2,do=raise", "it")), []
    before = signal.signal(signal.SIGUSR1, begin_another)
    try:
        with pytest.raises(InjectedError, match="rank 0, barrier, call 2"):
            asked.meet(0, Names(["dp"]), "barrier")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert was_free == [True]


def test_an_attempt_is_that_of_the_launcher(monkeypatch):
    asked = Faults(parse("attempt=1,do=raise", "it"))
    asked.meet(0, ["0"], "barrier")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    with pytest.raises(InjectedError, match="rank 0, barrier, call 1"):
        asked.meet(0, ["0"], "barrier")


def test_every_call_of_the_package_has_a_name_that_can_be_asked_for():
    called = set()
    for file in (ROOT / "src/allhands").rglob("*.py"):
        called.update(re.findall(r'\bCall\(\s*"(\w+)"', file.read_text()))
    core = (ROOT / "csrc/allhands/python/collectives.cpp").read_text()
    called.update(re.findall(r'{\.name = "(\w+)"', core))
    assert len(called) > 15
    assert called <= set(OPERATIONS)
