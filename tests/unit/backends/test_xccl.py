"""Backend xccl where the ranks cannot be connected; a stand-in is oneCCL's library."""

import threading
from datetime import timedelta
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

import allhands as dist
from allhands.backends.xccl import backend as xccl
from allhands.backends.xccl.library import OneCclError, OneCclLibrary
from harness.ranks import LIMIT, run_ranks

SIZE = 2


class Library:
    """It connects when it is told to, or fails to."""

    def __init__(self, problem=None):
        self.problem = problem
        self.may_connect = threading.Event()
        self.destroyed = []
        self.num_ids = 0

    def unique_id(self):
        self.num_ids += 1
        return b"id"

    def join(self, size, unique_id, rank):
        if self.problem is None:
            assert self.may_connect.wait(LIMIT)
            return rank + 1
        raise OneCclError(self.problem)

    def destroy(self, communicator):
        self.destroyed.append(communicator)


@pytest.fixture
def use(monkeypatch):
    def use(library):
        monkeypatch.setattr(xccl, "load", lambda: library)
        monkeypatch.setattr(xccl, "why_not_found", lambda: "")

    return use


def await_end_of_threads():
    for thread in threading.enumerate():
        if thread.name == "allhands xccl":
            thread.join(LIMIT)
            assert not thread.is_alive()


def test_what_the_library_says_is_told_and_no_thread_stays(use):
    use(Library("onecclCommInitRank: no wires (code 3)"))

    def body(rank):
        with pytest.raises(dist.DistBackendError, match=r"oneCCL says: .*no wires"):
            dist.new_group(backend="xccl")

    run_ranks(SIZE, body)
    await_end_of_threads()


def test_a_library_that_does_not_connect_in_time_gives_back_what_it_connects_late(use):
    library = Library()
    use(library)

    def body(rank):
        text = f"waited 0.2 s .its timeout. for oneCCL to connect {SIZE} ranks"
        with pytest.raises(dist.DistStoreError, match=text):
            dist.new_group(backend="xccl", timeout=timedelta(seconds=0.2))

    run_ranks(SIZE, body)
    library.may_connect.set()
    await_end_of_threads()
    assert sorted(library.destroyed) == [1, 2]


def test_a_group_that_ends_gives_back_what_it_has(use):
    library = Library()
    library.may_connect.set()
    use(library)

    def body(rank):
        group = dist.new_group(backend="xccl")
        assert library.destroyed == []
        dist.barrier()
        dist.destroy_process_group(group)
        assert rank + 1 in library.destroyed

    run_ranks(SIZE, body)
    await_end_of_threads()


def test_one_rank_gives_all_the_id_of_the_group(use):
    library = Library()
    library.may_connect.set()
    use(library)

    def body(rank):
        dist.destroy_process_group(dist.new_group(backend="xccl"))

    run_ranks(3, body)
    await_end_of_threads()
    assert library.num_ids == 1


def test_the_version_is_written_as_the_library_counts_it():
    functions = SimpleNamespace(
        onecclGetErrorString=Mock(), onecclGetLastError=Mock(), onecclGetVersion=tell
    )
    assert OneCclLibrary(functions).version() == "oneCCL 2022.1.3"


def tell(version):
    version._obj.value = 2022_01_03
    return 0
