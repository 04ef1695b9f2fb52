"""Ranks that ask for different backends learn so when they meet; ranks are threads."""

from datetime import timedelta

import pytest

import allhands as dist
from allhands.backends.config import asked_for
from allhands.rendezvous.asked import Asked, disagreement
from allhands.rendezvous.exchange import exchange
from allhands.rendezvous.identity import Introduction, process_identity
from allhands.store import HashStore
from harness.ranks import LIMIT, outcomes


@pytest.mark.parametrize(
    ("backend", "text", "is_usual"),
    [
        ("undefined", "", True),
        ("native", "native", True),
        ("NATIVE", "native", True),
        ("cpu:native,cuda:native", "native", True),
        ("cuda:nccl,cpu:native", "cpu:native,cuda:nccl", True),
        ("cpu:native", "native", True),
        ("cuda:native", "cuda:native", True),
        ("gloo", "gloo", False),
        ("cpu:gloo,cuda:nccl", "cpu:gloo,cuda:nccl", False),
    ],
)
def test_one_wish_has_one_form(backend, text, is_usual):
    assert asked_for(backend) == Asked(text, is_usual)


def test_what_serves_gloo_counts(monkeypatch):
    monkeypatch.setenv("ALLHANDS_REPLACE_GLOO", "1")
    assert asked_for("gloo") == asked_for("native")


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (["native", "native"], ""),
        (["undefined", "undefined"], ""),
        (["undefined", "native", "undefined"], ""),
        (["cpu:native,cuda:nccl", "undefined"], ""),
        (["native", "gloo"], "rank 0 for 'native', rank 1 for 'gloo'"),
        (["gloo", "undefined"], "rank 0 for 'gloo', rank 1 for the default"),
        (
            ["native", "mpi", "native", "native"],
            "ranks [0, 2, 3] for 'native', rank 1 for 'mpi'",
        ),
        (
            ["undefined", "native", "cpu:native,cuda:nccl"],
            "rank 0 for the default, rank 1 for 'native', rank 2 for "
            "'cpu:native,cuda:nccl'",
        ),
    ],
)
def test_who_asks_for_what(asked, told):
    found = disagreement(dict(enumerate(map(asked_for, asked))))
    assert found == (told and f"the ranks ask for different backends: {told}")


def test_the_default_takes_no_byte_in_the_store():
    me = process_identity()
    usual, other = Introduction(2, me), Introduction(2, me, Asked("gloo", False))
    assert len(other.to_bytes()) == len(usual.to_bytes()) + len(b', "gloo", false')
    for said in (usual, other):
        assert Introduction.read(1, said.to_bytes()) == said


@pytest.mark.parametrize("asked", [b', "gloo"', b", 1, true", b', "gloo", 1', b", []"])
def test_what_no_rank_asks_for_is_refused(asked):
    text = Introduction(2, process_identity()).to_bytes()
    with pytest.raises(dist.DistStoreError, match="says of rank 1 what no rank writes"):
        Introduction.read(1, text[:-1] + asked + b"]")


def test_all_ranks_of_a_meeting_are_told():
    wishes = ["native", "native", "gloo"]
    store = HashStore()

    def meet(rank):
        limit, asked = timedelta(seconds=LIMIT), asked_for(wishes[rank])
        exchange(store, rank, len(wishes), limit, "call", asked=asked)

    told = (
        "ranks ask for different backends: ranks [0, 1] for 'native', rank 2 for 'gloo'"
    )
    first, second, third = outcomes(3, meet, init=False)
    assert isinstance(first, ValueError)
    assert told in str(first)
    assert isinstance(second, dist.DistStoreError)
    assert "heard from rank 0: it finds that the" in str(second)
    assert told in str(second)
    assert isinstance(third, ValueError)
    assert "rank 0 for 'native', rank 2 for 'gloo'; every rank must" in str(third)


def test_ranks_may_ask_again_for_the_same():
    store = HashStore()

    def body(rank):
        def init(backend):
            dist.init_process_group(backend, store=store, rank=rank, world_size=2)

        with pytest.raises(ValueError, match="rank 0 for 'cuda:native', rank 1 for 'n"):
            init("native" if rank else "cuda:native")
        assert not dist.is_initialized()
        init(None if rank else "native")
        dist.barrier()

    assert outcomes(2, body, init=False) == [None, None]
