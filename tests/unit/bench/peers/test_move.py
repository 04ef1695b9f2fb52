"""What two ranks move, and what is left to do, are together the operation."""

import pytest

from allhands.bench.cells import DTYPES, OPERATIONS, Cell
from allhands.bench.data import Data
from allhands.bench.peers.move import move_of

OPS = [op for op in OPERATIONS if op not in ("send_recv", "exchange", "barrier")]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", [name for name in DTYPES if name != "bfloat16"])
@pytest.mark.parametrize("size", [8, 1000])
def test_what_was_moved_and_completed_is_the_operation(op, dtype, size):
    cell = Cell(2, op, dtype, "numpy", "sync", size, hosts=2)
    ranks = [Data(cell, rank) for rank in range(2)]
    for data in ranks:
        data.fill()
    moves = [move_of(cell.collective, data.rank, data) for data in ranks]
    for here, there in (moves, moves[::-1]):
        assert (here.sent is None) == (there.received is None)
        if here.sent is not None:
            there.received[:] = here.sent
    for move, data in zip(moves, ranks, strict=True):
        move.complete()
        data.check()


@pytest.mark.parametrize(
    ("op", "num_bytes"),
    [
        ("all_reduce", [1024, 1024]),
        ("reduce", [0, 1024]),
        ("broadcast", [1024, 0]),
        ("gather", [0, 512]),
        ("scatter", [512, 0]),
        ("all_gather", [512, 512]),
        ("reduce_scatter", [512, 512]),
        ("all_to_all", [512, 512]),
    ],
)
def test_no_more_is_moved_than_has_to_be(op, num_bytes):
    cell = Cell(2, op, "float32", "numpy", "sync", 1024, hosts=2)
    moves = [move_of(op, rank, Data(cell, rank)) for rank in range(2)]
    sent = [0 if move.sent is None else move.sent.nbytes for move in moves]
    assert sent == num_bytes
