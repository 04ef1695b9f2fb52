"""The hook of stores: what it is told, and that nothing is left of it."""

import os
from contextlib import contextmanager

import pytest

import allhands as dist
from allhands.store import hook
from harness.stores import LeastStore

KINDS = [dist.Store, dist.HashStore, dist.FileStore, dist.TCPStore, dist.PrefixStore]


@contextmanager
def told():
    requests = []
    hook.hang(requests.append)
    try:
        yield requests
    finally:
        hook.take_down(requests.append)


def use(store):
    """Each request once."""
    store.set("a", "1")
    store.get("a")
    store.add("n", 1)
    store.append("a", "2")
    store.check(["a"])
    store.wait(["a"])
    store.compare_set("a", "12", "3")
    store.multi_set(["b", "c"], ["x", "y"])
    store.multi_get(["b", "c"])
    store.list_keys()
    store.num_keys()
    store.delete_key("b")
    store.queue_push("q", "1")
    store.queue_len("q")
    store.queue_pop("q")
    store.barrier("all", 1)


@pytest.fixture(params=["hash", "file", "tcp", "prefix"])
def store(request, tmp_path):
    if request.param == "file":
        return dist.FileStore(str(tmp_path / "store"))
    if request.param == "tcp":
        return dist.TCPStore("127.0.0.1", 0, is_master=True)
    own = dist.HashStore()
    return own if request.param == "hash" else dist.PrefixStore("part", own)


def test_each_request_of_a_program_is_told_once(store):
    with told() as requests:
        use(store)
        assert sorted(requests) == sorted(hook.REQUESTS)
    use(store)
    assert len(requests) == len(hook.REQUESTS)


def test_without_a_hook_the_classes_are_as_written():
    before = [dict(vars(kind)) for kind in KINDS]
    with told():
        assert [dict(vars(kind)) for kind in KINDS] != before
        with told():
            pass
        assert dist.HashStore.get is not before[1]["get"]
    assert [dict(vars(kind)) for kind in KINDS] == before


def test_a_class_of_a_programs_own_is_told_of():
    with told() as requests:

        class Louder(LeastStore):  # made while there is a hook
            def get(self, key):
                return super().get(key) + b"!"

        store = Louder()
        store.set("a", "1")
        assert store.get("a") == b"1!"
        store.add("n", 1)  # made of compare_set
    assert requests == ["set", "get", "add"]


def test_what_a_program_puts_there_itself_stays(monkeypatch):
    with told():
        own = lambda self, key: b"own"  # noqa: E731
        monkeypatch.setattr(LeastStore, "get", own)
    assert LeastStore.get is own


def test_what_a_hook_raises_keeps_the_request_from_beginning():
    def refuse(request):
        raise RuntimeError(request)

    store = dist.HashStore()
    hook.hang(refuse)
    try:
        with pytest.raises(RuntimeError, match="set"):
            store.set("a", "1")
    finally:
        hook.take_down(refuse)
    assert not store.check(["a"])


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_child_has_no_hook():
    with told() as requests, hook._lock:  # as another thread may have it
        child = os.fork()
        if not child:
            code = 1
            try:
                dist.HashStore().set("a", "1")
                with told() as again:
                    dist.HashStore().set("a", "1")
                code = 0 if not requests and again == ["set"] else 2
            finally:
                os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_hook_may_come_while_another_is_hung():
    """As where a signal's handler interrupts that."""
    with hook._lock, told() as requests:
        dist.HashStore().set("a", "1")
    assert requests == ["set"]
