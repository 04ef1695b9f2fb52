"""DistributedSampler: the samples of a dataset that belong to this rank, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sized

import numpy as np

from allhands.groups.queries import get_rank, get_world_size

__all__ = ["DistributedSampler"]

_NUM_SEEDS = 1 << 64  # NumPy takes no negative seeds


class DistributedSampler:
    """This rank's share of the numbers of a dataset's samples, shuffled each epoch.

    All ranks shuffle in the same way, without communication, and take every
    `num_replicas`-th number. So all shares have the same length, and together they have
    all samples. If the samples cannot be divided evenly, the first numbers come a
    second time; with `drop_last` the last numbers are left out instead. The class works
    with any dataset that has a length, with or without torch:
    `torch.utils.data.DataLoader` takes it as `sampler`.

    torch has a class of this name, which shuffles in another order.

    Args:
        dataset: any object with a length.
        num_replicas: the number of shares; by default the number of ranks in the world.
        rank: the rank whose share this is; by default this rank.
        shuffle: whether to shuffle; otherwise the numbers stay in order.
        seed: the seed for shuffling, the same on every rank.
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
        """The number of samples of this rank."""
        self.total_size = self.num_samples * self.num_replicas
        """The number of samples of all ranks."""

    def set_epoch(self, epoch: int) -> None:
        """Shuffle differently from now on; every rank passes the same number."""
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
