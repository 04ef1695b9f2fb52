"""Errors of a group say which ranks of the world it has."""

from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from harness.ranks import LIMIT, run_ranks


def text_of(call):
    with pytest.raises(dist.DistBackendError) as caught:
        call()
    return str(caught.value)


def mismatch(group):
    """What a mismatch on `group` says, with its name left out."""
    count = 1 + dist.get_rank(group)
    text = text_of(lambda: dist.all_reduce(np.ones(count), group=group))
    return text.replace(f"'{group.group_name}'", "'NAME'")


def test_every_kind_of_error_says_it():
    def body(rank):
        whole = dist.group.WORLD
        odd = dist.new_group([3, 1], timeout=timedelta(seconds=LIMIT))
        of_it = dist.split_group(odd, [[1]]) if rank % 2 else None
        assert "the ranks of group 'NAME' called different" in mismatch(whole)
        if rank % 2 == 0:
            return
        where = "group 'NAME' (ranks 1, 3 of the world)"
        assert f"the ranks of {where} called different things" in mismatch(odd)
        peer = 4 - rank

        def unlike():
            if rank == 1:
                dist.send(np.ones(100_000), peer, odd)
            else:
                dist.recv(np.ones(7), peer, odd)

        name = odd.group_name
        on = f" on {where.replace('NAME', name)}: "
        assert on in text_of(unlike)
        if rank == 1:
            late = text_of(lambda: dist.all_reduce(np.ones(2), group=odd, timeout=SOON))
            assert on in late
        if of_it is not None:
            dist.all_reduce(np.ones(2), group=of_it)

    run_ranks(4, body)


SOON = timedelta(seconds=0.1)


def test_the_order_is_that_of_the_group():
    def body(rank):
        turned = dist.new_group([2, 0, 1], sort_ranks=False)
        return "group 'NAME' (ranks 2, 0, 1 of the world) called" in mismatch(turned)

    assert run_ranks(3, body) == [True] * 3


def test_groups_of_other_worlds_have_no_ranks_in_this_one():
    store = dist.HashStore()

    def body(thread):
        world, rank = divmod(thread, 2)
        dist.init_process_group(
            store=dist.PrefixStore(f"world{world}", store), rank=rank, world_size=2
        )
        limit = timedelta(seconds=LIMIT)
        merged = dist.group.WORLD.merge_remote_group(store, 4, limit)
        part = merged.split_group([1, 2])
        texts = [mismatch(merged)]
        if part is not None:
            texts.append(mismatch(part))
        return texts

    for texts in run_ranks(4, body, init=False):
        for text in texts:
            assert "the ranks of group 'NAME' called different things" in text
