"""The page on which ranks of a host note which calls of new_group agree."""

import json
import os
import pathlib
from contextlib import ExitStack, closing

import pytest

import allhands as dist
from allhands import HashStore
from allhands.groups import agreed_calls
from allhands.groups.agreed_calls import AgreedCalls
from allhands.rendezvous.identity import process_identity

HOST, PID, START, _ = process_identity()
KEY = f"page/{HOST}"


@pytest.fixture
def ranks():
    """The pages of three ranks of one host."""
    store = HashStore()
    with ExitStack() as pages:
        yield [
            pages.enter_context(closing(AgreedCalls(store, "world"))) for _ in range(3)
        ]


def pages():
    """Names of the pages that this process has open."""
    folder = pathlib.Path("/proc/self/fd")
    names = [os.readlink(path) for path in folder.iterdir() if path.exists()]
    return [name for name in names if "allhands_groups" in name]


def test_what_one_rank_notes_the_others_have(ranks):
    first, second, third = ranks
    assert not second.have(1, "a call")
    first.add(1, "a call")
    assert second.have(1, "a call")
    assert not second.have(2, "a call")
    assert not second.have(1, "another call")
    second.forget(1)
    assert not third.have(1, "a call")


def test_a_page_forgets_calls_long_before(ranks):
    first, second, _ = ranks
    first.add(1, "a call")
    first.add(1 + agreed_calls._NUM_WORDS, "a call")
    assert not second.have(1, "a call")
    assert second.have(1 + agreed_calls._NUM_WORDS, "a call")


def test_a_page_that_is_closed_knows_nothing(ranks):
    first, second, _ = ranks
    first.add(1, "a call")
    second.close()
    second.close()
    second.add(2, "a call")
    second.forget(1)
    assert not second.have(1, "a call")
    assert first.have(1, "a call")


def test_worlds_have_pages_of_their_own():
    store = HashStore()
    with closing(AgreedCalls(store, "world")) as one:
        with closing(AgreedCalls(store, "other")) as other:  # it finds the page of one
            one.add(1, "a call")
            other.add(1, "b call")
            assert not other.have(1, "b call")
        assert one.have(1, "a call")


def test_nothing_is_written_to_another_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(agreed_calls._NUM_BYTES))
    store = HashStore()
    with open(path, "r+b") as file:
        store.set(KEY, json.dumps([PID, START, file.fileno()]))
        with closing(AgreedCalls(store, "world")) as page:
            page.add(1, "a call")
            assert not page.have(1, "a call")
    assert path.read_bytes() == bytes(agreed_calls._NUM_BYTES)


@pytest.mark.parametrize(
    "owner",
    [
        "x",
        "7",
        "[1, 2]",
        '[PID, START, "../../../etc/passwd"]',
        "[PID, START, 99999]",
        '["PID", START, 1]',
        f"[{1 << 30}, START, 1]",
    ],
)
def test_a_page_that_cannot_be_had_is_done_without(owner):
    store = HashStore()
    store.set(KEY, owner.replace("PID", str(PID)).replace("START", str(START)))
    before = os.listdir("/proc/self/fd")
    page = AgreedCalls(store, "world")
    page.add(1, "a call")
    assert not page.have(1, "a call")
    assert os.listdir("/proc/self/fd") == before


def test_it_goes_with_the_world():
    before = pages()
    dist.init_process_group(store=HashStore(), rank=0, world_size=1)
    try:
        for _ in range(3):
            dist.new_group([0])
        assert len(pages()) == len(before) + 1
    finally:
        dist.destroy_process_group()
    assert pages() == before


def test_a_forked_child_leaves_it_alone():
    dist.init_process_group(store=HashStore(), rank=0, world_size=1)
    try:
        dist.new_group([0])
        child = os.fork()
        if child == 0:  # its world is gone, and with it the page
            os._exit(len(pages()))
        assert os.waitpid(child, 0)[1] == 0
        dist.new_group([0])
    finally:
        dist.destroy_process_group()
