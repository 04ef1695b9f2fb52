"""PyTorch's DDP trains one network to read handwritten digits, on our engine or Gloo.

    allhands run --nproc-per-node 2 examples/torch_ddp.py
    torchrun --nproc-per-node 2 examples/torch_ddp.py     # also with allhands run
    python examples/torch_ddp.py                          # alone: a world of one rank

With `--backend gloo` the program asks for Gloo, and `allhands run --replace-gloo` gives
it our engine all the same. Nothing here but the name of the backend is ours.
"""

import argparse
import contextlib
import hashlib
import os
import statistics
import time

import torch
import torch.distributed as dist
from rich.console import Console
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def make_network():
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 4 * 4, 128), nn.ReLU(), nn.Linear(128, 10)),
    )


def load():
    """Digits for training and for the test: images of 8 x 8, and what they show."""
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    labels = torch.tensor(labels)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    num_train = len(labels) * 4 // 5
    train, test = order[:num_train], order[num_train:]
    return (images[train], labels[train]), (images[test], labels[test])


def train_epoch(network, optimizer, batches):
    """One pass over this rank's share of the data; the mean loss of its batches."""
    losses = []
    for images, labels in batches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(images), labels)
        loss.backward()  # averages the gradients over the ranks
        optimizer.step()
        losses.append(loss.item())
    return statistics.fmean(losses)


def accuracy_of(network, images, labels):
    """Each rank counts the hits in its share of the data."""
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    with torch.no_grad():
        hits = (network(images[mine]).argmax(1) == labels[mine]).sum()
    dist.all_reduce(hits)
    return hits.item() / len(labels)


def communication_of(network, images, labels, repeats=30):
    """The share of a pass forward and back that only communication takes."""

    def seconds_of_a_pass(kind):
        dist.barrier()
        start = time.perf_counter()
        with kind:
            nn.functional.cross_entropy(network(images), labels).backward()
        seconds = time.perf_counter() - start
        network.zero_grad()
        return seconds

    whole, local = [], []
    for _ in range(repeats):
        whole.append(seconds_of_a_pass(contextlib.nullcontext()))
        local.append(seconds_of_a_pass(network.no_sync()))
    return max(0.0, 1 - statistics.median(local) / statistics.median(whole))


def is_identical_everywhere(network):
    """Whether the parameters have the same bits on all ranks."""
    mine = hashlib.sha256()
    for parameter in network.parameters():
        mine.update(parameter.detach().numpy())
    digests = [None] * dist.get_world_size()
    dist.all_gather_object(digests, mine.hexdigest())
    return len(set(digests)) == 1


def main(options):
    torch.manual_seed(options.seed + dist.get_rank())  # DDP begins with rank 0's
    train_set, test_set = load()
    network = DistributedDataParallel(make_network())
    optimizer = torch.optim.Adam(network.parameters(), 2e-3)
    dataset = TensorDataset(*train_set)
    sampler = DistributedSampler(dataset, seed=options.seed)
    share = max(1, options.batch // dist.get_world_size())
    batches = DataLoader(dataset, share, sampler=sampler)

    console = Console(quiet=dist.get_rank() != 0, soft_wrap=True, highlight=False)
    with console.status("starting") as status:  # a live line, on a terminal only
        for epoch in range(options.epochs):
            sampler.set_epoch(epoch)
            start = time.perf_counter()
            loss = train_epoch(network, optimizer, batches)
            seconds = time.perf_counter() - start
            line = (
                f"epoch {epoch + 1:2}: loss {loss:.4f}  "
                f"{len(batches) / seconds:5,.0f} steps/s"
            )
            status.update(line)
            if not console.is_interactive or epoch + 1 == options.epochs:
                console.print(line)
        status.update("measuring")
        first = slice(0, share)
        share_waiting = communication_of(network, *(part[first] for part in train_set))

    accuracy = accuracy_of(network, *test_set)
    identical = "yes" if is_identical_everywhere(network) else "NO"
    console.print(
        f"test accuracy {accuracy:.3f} on {dist.get_world_size()} ranks of "
        f"{dist.get_backend()}; communication takes {share_waiting:.0%} of a step; "
        f"parameters bit-identical on all ranks: {identical}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="allhands", help="or gloo")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=64, help="samples, of all ranks")
    parser.add_argument("--seed", type=int, default=1234)
    arguments = parser.parse_args()
    if "RANK" in os.environ:
        dist.init_process_group(arguments.backend)
    else:
        store = dist.HashStore()
        dist.init_process_group(arguments.backend, store=store, rank=0, world_size=1)
    main(arguments)
    dist.destroy_process_group()
