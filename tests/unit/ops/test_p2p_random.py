"""Random programs of messages: all finish, with the right data; ranks are threads."""

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import allhands as dist
from harness.ranks import run_ranks

NUM_PROGRAMS = 1000
PER_WORLD = 25  # programs that one set of ranks runs, one after the other
SEED = int(os.environ.get("P2P_SEED") or int.from_bytes(os.urandom(4), "little"))

# Empty, in the header's cache line, small, the last small one, large, many pieces.
COUNTS = [0, 1, 3, 100, 4096, 4097, 10_000, 40_000]


@st.composite
def programs(draw, size):
    """Messages (source, destination, tag, count), and the calls of each rank in order.

    A call that is marked receives from any rank, where only one can have sent.
    """
    others = [(a, b) for a in range(size) for b in range(size) if a != b]
    message = st.tuples(st.sampled_from(others), st.integers(0, 2))
    messages = [
        (source, destination, tag, COUNTS[draw(st.integers(0, len(COUNTS) - 1))])
        for (source, destination), tag in draw(st.lists(message, max_size=8))
    ]
    plans = []
    for rank in range(size):
        calls = [("send", n) for n, m in enumerate(messages) if m[0] == rank]
        calls += [("recv", n) for n, m in enumerate(messages) if m[1] == rank]
        plans.append(
            [(*call, draw(st.booleans())) for call in draw(st.permutations(calls))]
        )
    return messages, plans


def first_of(kind, calls, messages):
    """The messages in the order in which calls of one kind match: per pair and tag."""
    queues = {}
    for call, number, _ in calls:
        if call == kind:
            queues.setdefault(messages[number][:3], []).append(number)
    return queues


def run_program(rank, program, base):
    """Run this rank's calls; what arrives tells which message it was."""
    messages, plans = program
    # A fast rank is in the next program already: its tags are others.
    messages = [(*ends, base + tag, count) for *ends, tag, count in messages]
    works, outputs = [], []
    expected = {}
    for key, numbers in first_of("recv", plans[rank], messages).items():
        sent = first_of("send", plans[key[0]], messages)[key]
        expected.update(zip(numbers, sent, strict=True))
    for kind, number, wild in plans[rank]:
        source, destination, tag, count = messages[number]
        if kind == "send":
            data = np.full(count, base + number)
            works.append(dist.isend(data, destination, tag=tag))
            continue
        sent = expected[number]
        output = np.full(messages[sent][3], -1)
        sources = {m[0] for m in messages if m[1:3] == (destination, tag)}
        peer = None if wild and len(sources) == 1 else source
        works.append(dist.irecv(output, peer, tag=tag))
        outputs.append((works[-1], output, base + sent, source))
    for work in works:
        work.wait()
    for work, output, value, source in outputs:
        assert (output == value).all()
        assert work.source_rank() == source


@pytest.mark.parametrize("size", [2, 3, 4])
def test_random_programs_finish_with_the_right_data(size):
    print(f"P2P_SEED={SEED}")
    num_run = []

    @seed(SEED + size)
    @settings(
        max_examples=-(-NUM_PROGRAMS // PER_WORLD // 3),
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(programs(size), min_size=PER_WORLD, max_size=PER_WORLD))
    def check(batch):
        num_run.append(len(batch))

        def body(rank):
            for number, program in enumerate(batch):
                run_program(rank, program, 1000 * number)

        run_ranks(size, body)

    check()
    assert 3 * sum(num_run) >= NUM_PROGRAMS
