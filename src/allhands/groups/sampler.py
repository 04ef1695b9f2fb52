"""DistributedSampler: which samples of a dataset are this rank's, in which order."""

from __future__ import annotations

from collections.abc import Iterator, Sized

import numpy as np

from allhands.groups.queries import get_rank, get_world_size

__all__ = ["DistributedSampler"]

_NUM_SEEDS = 1 << 64  # NumPy takes no negative ones


class DistributedSampler:
    """This rank's share of the numbers of a dataset's samples, shuffled each epoch.

    All ranks shuffle alike, without communication, and take every `num_replicas`-th
    number: shares have one length and, together, all samples. Where the samples cannot
    be shared evenly, the first numbers come a second time, or with `drop_last` the last
    ones not at all. It works with any dataset that has a length, with or without torch:
    `torch.utils.data.DataLoader` takes it as `sampler`.

    As in torch, whose class of this name shuffles in another order.

    Args:
        dataset: only its length counts.
        num_replicas: how many shares there are; by default the ranks of the world.
        rank: whose share; by default this rank's.
        shuffle: or else the numbers stay in order.
        seed: of the shuffling, the same on every rank.
        drop_last: see above.

    Raises:
        ValueError: `num_replicas` is not positive, `rank` is not in
            [0, `num_replicas`), or one of them is left out and there is no world.

    Example:
        ```python
        sampler = dist.DistributedSampler(images)
        for epoch in range(3):
            sampler.set_epoch(epoch)
            for number in sampler:
                train(images[number])
        ```
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        self.dataset = dataset
        self.num_replicas = get_world_size() if num_replicas is None else num_replicas
        self.rank = get_rank() if rank is None else rank
        if self.num_replicas < 1:
            raise ValueError(f"num_replicas must be positive, got {num_replicas}")
        if not 0 <= self.rank < self.num_replicas:
            raise ValueError(
                f"Invalid rank {self.rank}, rank should be in the interval [0, "
                f"{self.num_replicas - 1}]"
            )
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.epoch = 0
        whole, rest = divmod(len(dataset), self.num_replicas)
        self.num_samples = whole + (rest > 0 and not drop_last)
        """Of this rank."""
        self.total_size = self.num_samples * self.num_replicas
        """Of all ranks."""

    def set_epoch(self, epoch: int) -> None:
        """Shuffle otherwise from now on; every rank gives the same number."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        count = len(self.dataset)
        order = np.arange(count)
        if self.shuffle:
            numbers = [self.seed % _NUM_SEEDS, self.epoch % _NUM_SEEDS]
            order = np.random.default_rng(numbers).permutation(count)
        places = np.arange(self.rank, self.total_size, self.num_replicas)
        return iter(order[places % max(count, 1)].tolist())

    def __len__(self) -> int:
        return self.num_samples
