"""DistributedSampler: the shares are even, and together all samples."""

import numpy as np
import pytest

import allhands as dist
from harness.ranks import run_ranks


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 10])
@pytest.mark.parametrize("shuffle", [False, True])
def test_shares_are_even_and_together_all_samples(size, count, shuffle):
    def body(rank):
        sampler = dist.DistributedSampler(range(count), shuffle=shuffle)
        numbers = list(sampler)
        assert len(numbers) == len(sampler) == sampler.num_samples == -(-count // size)
        assert sampler.total_size == size * len(sampler)
        return numbers

    shares = run_ranks(size, body)
    dealt = [number for row in zip(*shares, strict=True) for number in row]
    order = dealt[:count]
    assert sorted(order) == list(range(count))
    assert dealt == (order * size)[: len(dealt)]  # padded from the start
    assert shuffle or order == list(range(count))


@pytest.mark.parametrize("count", [0, 2, 7, 9])
def test_the_last_ones_are_left_out_where_asked(count):
    shares = [
        list(dist.DistributedSampler(np.empty(count), 3, rank, drop_last=True, seed=5))
        for rank in range(3)
    ]
    assert [len(share) for share in shares] == [count // 3] * 3
    assert len({n for share in shares for n in share}) == count // 3 * 3


def test_each_epoch_and_seed_has_an_order_of_its_own():
    def order(seed, epoch):
        sampler = dist.DistributedSampler(range(50), 1, 0, seed=seed)
        sampler.set_epoch(epoch)
        assert list(sampler) == list(sampler)
        return tuple(sampler)

    orders = {order(seed, epoch) for seed in range(3) for epoch in range(3)}
    assert len(orders) == 9
    assert order(1, 2) == order(1, 2)


def test_without_shuffling_it_is_torchs():
    data = pytest.importorskip("torch.utils.data")
    for count in (0, 1, 2, 10, 12):
        for drop_last in (False, True):
            for rank in range(4):
                options = {"num_replicas": 4, "rank": rank, "shuffle": False}
                ours, theirs = (
                    kind(range(count), drop_last=drop_last, **options)
                    for kind in (dist.DistributedSampler, data.DistributedSampler)
                )
                if count:  # torch's divides by zero
                    assert list(ours) == list(theirs)
                assert (len(ours), ours.total_size) == (len(theirs), theirs.total_size)


def test_torchs_data_loader_takes_it():
    data = pytest.importorskip("torch.utils.data")
    sampler = dist.DistributedSampler(range(8), 2, 1, shuffle=False)
    loader = data.DataLoader(range(8), 2, sampler=sampler)
    assert [batch.tolist() for batch in loader] == [[1, 3], [5, 7]]


@pytest.mark.parametrize("rank", [-1, 2])
def test_a_rank_that_there_is_not(rank):
    with pytest.raises(ValueError, match=rf"Invalid rank {rank}, .* \[0, 1\]"):
        dist.DistributedSampler(range(4), 2, rank)


def test_there_is_a_share():
    with pytest.raises(ValueError, match="num_replicas must be positive, got 0"):
        dist.DistributedSampler(range(4), 0, 0)


def test_a_seed_may_be_negative():
    sampler = dist.DistributedSampler(range(100), 1, 0, seed=-1)
    assert sorted(sampler) == list(range(100)) != list(sampler)
    assert list(sampler) != list(dist.DistributedSampler(range(100), 1, 0, seed=1))


def test_it_needs_a_world_or_the_numbers():
    with pytest.raises(ValueError, match="has not been initialized"):
        dist.DistributedSampler(range(4))
