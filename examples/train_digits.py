"""Several processes train one neural network to read handwritten digits.

    allhands run --nproc-per-node 2 examples/train_digits.py
    python examples/train_digits.py          # alone: a world of one rank

Every rank has the whole network and its own share of each batch. It computes the
gradients of its share; one call per step averages them, so that all ranks take the same
step and their parameters stay the same, bit for bit.
"""

import argparse
import hashlib
import json
import os
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from sklearn.datasets import load_digits

import allhands as dist

PIXELS, HIDDEN, DIGITS = 64, 256, 10
SHAPES = [(PIXELS, HIDDEN), (HIDDEN,), (HIDDEN, DIGITS), (DIGITS,)]
LEARNING_RATE, MOMENTUM = 0.05, 0.9


def forward(parameters, images):
    w1, b1, w2, b2 = parameters
    hidden = np.tanh(images @ w1 + b1)
    scores = hidden @ w2 + b2
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, odds / odds.sum(axis=1, keepdims=True)


def gradients(parameters, images, labels):
    """A gradient for each parameter, then loss and hits: sums over the samples."""
    hidden, odds = forward(parameters, images)
    samples = np.arange(len(labels))
    loss = -np.log(odds[samples, labels]).sum()
    hits = (odds.argmax(axis=1) == labels).sum()
    odds[samples, labels] -= 1  # from here on the gradient of the scores
    before = (odds @ parameters[2].T) * (1 - hidden**2)
    return [
        *(images.T @ before, before.sum(axis=0)),
        *(hidden.T @ odds, odds.sum(axis=0)),
        np.array([loss, hits], np.float64),
    ]


def partition(num_samples, batch, seed):
    """This rank's share of every batch, and the size of the whole batch.

    All ranks shuffle with one seed, so a batch is the same samples on any number of
    ranks. Shares may differ by a sample, or be empty: sums don't mind.
    """
    order = np.random.default_rng(seed).permutation(num_samples)
    for start in range(0, num_samples, batch):
        whole = order[start : start + batch]
        share = np.array_split(whole, dist.get_world_size())[dist.get_rank()]
        yield share, len(whole)


def train_epoch(parameters, velocity, images, labels, batch, seed):
    """One pass over the data; mean loss, accuracy, seconds spent in communication."""
    loss = hits = communication = 0.0
    size = dist.get_world_size()
    for share, batch_size in partition(len(labels), batch, seed):
        *slopes, counts = sums = gradients(parameters, images[share], labels[share])
        start = time.perf_counter()
        dist.average_gradients(sums)
        communication += time.perf_counter() - start
        per_sample = size / batch_size  # of an average over ranks
        for parameter, speed, slope in zip(parameters, velocity, slopes, strict=True):
            speed *= MOMENTUM
            speed -= LEARNING_RATE * per_sample * slope
            parameter += speed
        loss += size * counts[0]
        hits += size * counts[1]
    return loss / len(labels), hits / len(labels), communication


def test(parameters, images, labels):
    """Accuracy: each rank counts the hits in its share of the data."""
    share = slice(dist.get_rank(), None, dist.get_world_size())
    guesses = forward(parameters, images[share])[1].argmax(axis=1)
    hits = np.array([(guesses == labels[share]).sum()])
    dist.all_reduce(hits)
    return hits[0] / len(labels)


def is_identical_everywhere(arrays):
    """Whether `arrays` have the same bits on all ranks."""
    mine = hashlib.sha256()
    for array in arrays:
        mine.update(array)
    digest = np.frombuffer(mine.digest(), np.uint8)
    digests = np.empty((dist.get_world_size(), len(digest)), np.uint8)
    dist.all_gather_single(digests, digest)
    return bool((digests == digest).all())


def main(options):
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = images[order].astype(np.float32) / 16, labels[order]
    num_train = len(labels) * 4 // 5

    # Ranks draw different numbers; the broadcast makes all start from those of rank 0.
    rng = np.random.default_rng([options.seed, dist.get_rank()])
    parameters = [rng.normal(0, 0.1, shape).astype(np.float32) for shape in SHAPES]
    for parameter in parameters:
        dist.broadcast(parameter, src=0)
    velocity = [np.zeros_like(parameter) for parameter in parameters]

    console = Console(quiet=dist.get_rank() != 0, soft_wrap=True, highlight=False)
    losses = []
    with console.status("starting") as status:  # a live line, on a terminal only
        for epoch in range(options.epochs):
            start = time.perf_counter()
            loss, accuracy, communication = train_epoch(
                parameters,
                velocity,
                images[:num_train],
                labels[:num_train],
                options.batch,
                seed=[options.seed, epoch],
            )
            seconds = time.perf_counter() - start
            losses.append(float(loss))
            line = (
                f"epoch {epoch + 1:2}: loss {loss:.4f}  accuracy {accuracy:.3f}  "
                f"{num_train / seconds:7,.0f} samples/s  "
                f"comm. {communication / seconds:.0%}"
            )
            status.update(line)
            if not console.is_interactive or epoch + 1 == options.epochs:
                console.print(line)

    accuracy = test(parameters, images[num_train:], labels[num_train:])
    identical = "yes" if is_identical_everywhere(parameters) else "NO"
    console.print(
        f"test accuracy {accuracy:.3f} on {dist.get_world_size()} ranks; "
        f"parameters bit-identical on all ranks: {identical}"
    )
    if options.losses and dist.get_rank() == 0:
        options.losses.write_text(json.dumps(losses))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch", type=int, default=64, help="samples, of all ranks")
    parser.add_argument("--seed", type=int, default=1234)
    parser.add_argument("--losses", type=Path, help="write each epoch's loss there")
    arguments = parser.parse_args()
    if "RANK" in os.environ:
        dist.init_process_group()
    else:
        dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    main(arguments)
    dist.destroy_process_group()
