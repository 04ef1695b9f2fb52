"""Several processes train one neural network to read handwritten digits.

    allhands run --nproc-per-node 2 examples/train_digits.py
    python examples/train_digits.py          # alone: a world of one rank

Every rank has the whole network and its own share of each batch. It computes the
gradient of its share; one all_reduce per step adds the shares up, so that all ranks
take the same step and their parameters stay the same, bit for bit.
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
ENDS = np.cumsum([PIXELS * HIDDEN, HIDDEN, HIDDEN * DIGITS, DIGITS])
NUM_PARAMETERS = ENDS[-1]
LEARNING_RATE, MOMENTUM = 0.05, 0.9


def layers(vector):
    """Weights and biases of both layers: views into one vector that holds them all."""
    w1, b1, w2, b2, _ = np.split(vector, ENDS)
    return w1.reshape(PIXELS, HIDDEN), b1, w2.reshape(HIDDEN, DIGITS), b2


def forward(parameters, images):
    w1, b1, w2, b2 = layers(parameters)
    hidden = np.tanh(images @ w1 + b1)
    scores = hidden @ w2 + b2
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, odds / odds.sum(axis=1, keepdims=True)


def gradient(parameters, images, labels):
    """Gradient, then loss and hits, each summed over the samples, in one vector."""
    sums = np.empty(NUM_PARAMETERS + 2, np.float32)
    dw1, db1, dw2, db2 = layers(sums)
    hidden, odds = forward(parameters, images)
    samples = np.arange(len(labels))
    sums[-2] = -np.log(odds[samples, labels]).sum()
    sums[-1] = (odds.argmax(axis=1) == labels).sum()
    odds[samples, labels] -= 1  # from here on the gradient of the scores
    np.matmul(hidden.T, odds, out=dw2)
    odds.sum(axis=0, out=db2)
    before = (odds @ layers(parameters)[2].T) * (1 - hidden**2)
    np.matmul(images.T, before, out=dw1)
    before.sum(axis=0, out=db1)
    return sums


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
    for share, batch_size in partition(len(labels), batch, seed):
        sums = gradient(parameters, images[share], labels[share])
        start = time.perf_counter()
        dist.all_reduce(sums)
        communication += time.perf_counter() - start
        velocity *= MOMENTUM
        velocity -= LEARNING_RATE / batch_size * sums[:NUM_PARAMETERS]
        parameters += velocity
        loss += sums[-2]
        hits += sums[-1]
    return loss / len(labels), hits / len(labels), communication


def test(parameters, images, labels):
    """Accuracy: each rank counts the hits in its share of the data."""
    share = slice(dist.get_rank(), None, dist.get_world_size())
    guesses = forward(parameters, images[share])[1].argmax(axis=1)
    hits = np.array([(guesses == labels[share]).sum()])
    dist.all_reduce(hits)
    return hits[0] / len(labels)


def is_identical_everywhere(array):
    """Whether `array` has the same bits on all ranks."""
    mine = np.frombuffer(hashlib.sha256(array).digest(), np.uint8)
    digests = np.empty((dist.get_world_size(), len(mine)), np.uint8)
    dist.all_gather_single(digests, mine)
    return bool((digests == mine).all())


def main(options):
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = images[order].astype(np.float32) / 16, labels[order]
    num_train = len(labels) * 4 // 5

    # Ranks draw different numbers; the broadcast makes all start from those of rank 0.
    rng = np.random.default_rng([options.seed, dist.get_rank()])
    parameters = rng.normal(0, 0.1, NUM_PARAMETERS).astype(np.float32)
    dist.broadcast(parameters, src=0)
    velocity = np.zeros_like(parameters)

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
