"""The tutorial's distributed SGD, on torch; docs/tutorial.md has it on NumPy.

The data are made up instead of downloaded: points of ten classes, a cloud each. Ranks
are threads, so what is random has a generator of its own.
"""

from math import ceil
from random import Random

import pytest

import allhands as dist
from harness.ranks import run_ranks

torch = pytest.importorskip("torch")
F = torch.nn.functional
NUM_POINTS = 1280


class Partition:
    """Some of the samples of `data`."""

    def __init__(self, data, index):
        self.data, self.index = data, index

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        return self.data[self.index[i]]


class DataPartitioner:
    """Splits `data` at random; the same parts on every rank."""

    def __init__(self, data, sizes=(0.7, 0.2, 0.1), seed=1234):
        self.data, self.partitions = data, []
        indexes = list(range(len(data)))
        Random(seed).shuffle(indexes)
        for fraction in sizes:
            length = int(fraction * len(data))
            self.partitions.append(indexes[:length])
            indexes = indexes[length:]

    def use(self, partition):
        return Partition(self.data, self.partitions[partition])


def clouds():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(NUM_POINTS) % 10
    centers = 3 * torch.randn(10, 16, generator=generator)
    points = centers[labels] + torch.randn(NUM_POINTS, 16, generator=generator)
    return torch.utils.data.TensorDataset(points, labels)


def partition_dataset(batch):
    size = dist.get_world_size()
    partitioner = DataPartitioner(clouds(), [1.0 / size] * size)
    partition = partitioner.use(dist.get_rank())
    order = torch.Generator().manual_seed(dist.get_rank())
    batch_here = batch // size
    loader = torch.utils.data.DataLoader(
        partition, batch_size=batch_here, shuffle=True, generator=order
    )
    return loader, batch_here


def net():
    return torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)
    )


def average_gradients(model):
    size = float(dist.get_world_size())
    for param in model.parameters():
        dist.all_reduce(param.grad.data, op=dist.ReduceOp.SUM)
        param.grad.data /= size


def train(start, batch, epochs):
    """Mean loss of each epoch on this rank, and the parameters at the end."""
    train_set, batch_here = partition_dataset(batch)
    model = net()
    model.load_state_dict(start)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    num_batches = ceil(len(train_set.dataset) / float(batch_here))
    losses = []
    for _ in range(epochs):
        epoch_loss = 0.0
        for data, target in train_set:
            optimizer.zero_grad()
            loss = F.nll_loss(F.log_softmax(model(data), dim=1), target)
            epoch_loss += loss.item()
            loss.backward()
            average_gradients(model)
            optimizer.step()
        losses.append(epoch_loss / num_batches)
    return losses, torch.nn.utils.parameters_to_vector(model.parameters()).detach()


@pytest.fixture
def start():
    torch.manual_seed(1234)
    return net().state_dict()


def test_partitions_are_disjoint_and_cover_the_data():
    data = range(100)
    partitioner = DataPartitioner(data, [0.5, 0.5])
    first, second = (list(partitioner.use(part)) for part in range(2))
    assert len(first) == len(second) == 50
    assert sorted(first + second) == list(data)


def test_distributed_sgd(start):
    ranks = run_ranks(2, lambda rank: train(start, batch=128, epochs=10))
    for losses, parameters in ranks:
        assert losses[-1] < 0.3 < 2 < losses[0]  # from guessing, ln 10, to knowing
        assert torch.equal(parameters, ranks[0][1])


def test_two_ranks_take_the_steps_that_one_takes(start):
    """Each step is over all data, so the order of the samples does not matter."""

    def body(rank):
        return train(start, batch=NUM_POINTS, epochs=3)[1]

    [alone] = run_ranks(1, body)
    for parameters in run_ranks(2, body):
        torch.testing.assert_close(parameters, alone, rtol=0, atol=1e-5)
