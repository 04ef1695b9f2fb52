"""record_comm names a region."""

import sys

import numpy as np
import pytest

import allhands as dist
from allhands.groups.world import World, use
from harness.ranks import run_ranks


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes")
def test_an_error_says_where_it_was():
    def body(rank):
        with (
            pytest.raises(dist.CollectiveMismatchError) as caught,
            dist.record_comm("layer 1"),
            dist.record_comm("bias"),
        ):
            dist.all_reduce(np.ones(1 + rank))
        return caught.value.__notes__

    assert (
        run_ranks(2, body)
        == [["in record_comm('bias')", "in record_comm('layer 1')"]] * 2
    )


def test_other_errors_are_left_alone():
    with pytest.raises(KeyError) as caught, dist.record_comm("layer 1"):
        raise KeyError("x")
    assert not getattr(caught.value, "__notes__", [])


def test_a_profiler_shows_it():
    torch = pytest.importorskip("torch")

    @dist.record_comm("gradients")
    def step():
        dist.all_reduce(tensor)

    tensor = torch.ones(20, 10)
    with use(World()), torch.profiler.profile() as profile:
        dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
        step()
        step()
        dist.destroy_process_group()
    counts = {event.key: event.count for event in profile.key_averages()}
    assert counts["gradients"] == 2
