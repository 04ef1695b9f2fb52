"""Worlds of threads as tests make them, and what shows that a group works."""

import numpy as np

import allhands as dist


def init(store=None, rank=0, world_size=1, **options):
    dist.init_process_group(
        store=store or dist.HashStore(), rank=rank, world_size=world_size, **options
    )


def url_of(port, rank, size):
    return f"tcp://127.0.0.1:{port}?rank={rank}&world_size={size}"


def total(group=None):
    """The sum of the members' global ranks, by all_reduce."""
    array = np.array([dist.get_rank()])
    dist.all_reduce(array, group=group)
    return int(array[0])
