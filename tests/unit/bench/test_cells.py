"""Cells: their elements, and the factors of bus bandwidth."""

import pytest

from allhands.bench.cells import (
    OPERATIONS,
    Cell,
    all_cells,
)


def cell(op, size, ranks=2, dtype="float32"):
    return Cell(ranks, op, dtype, "numpy", "sync", size)


@pytest.mark.parametrize(
    ("op", "factor"),
    [
        ("all_reduce", 1.5),
        ("all_gather_single", 0.75),
        ("all_gather", 0.75),
        ("reduce_scatter", 0.75),
        ("all_to_all", 0.75),
        ("reduce_scatter_single", 0.75),
        ("all_to_all_single", 0.75),
        ("gather", 0.75),
        ("scatter", 0.75),
        ("broadcast", 1),
        ("reduce", 1),
        ("send_recv", 1),
        ("exchange", 1),
        ("barrier", 1),
    ],
)
def test_bus_factors_of_4_ranks_are_those_of_nccl_tests(op, factor):
    assert OPERATIONS[op].bus_factor(4) == factor


def test_every_rank_has_a_share():
    assert cell("all_gather_single", 8, ranks=3).count == 3
    assert cell("all_to_all_single", 24, ranks=4).count == 8
    assert cell("all_to_all_single", 24, ranks=4).num_bytes == 32
    assert cell("all_reduce", 24, ranks=4).num_bytes == 24
    assert cell("all_reduce", 1, ranks=4).num_bytes == 4  # one element at least


def test_a_barrier_is_one_cell_per_mode():
    cells = list(
        all_cells(
            2,
            ["barrier", "reduce"],
            ["float32", "int8"],
            ["numpy"],
            ["sync", "async"],
            [8, 16],
        )
    )
    assert [c.mode for c in cells if c.op == "barrier"] == ["sync", "async"]
    assert [c.num_bytes for c in cells if c.op == "barrier"] == [0, 0]
    assert sum(c.op == "reduce" for c in cells) == 2 * 2 * 2


@pytest.mark.parametrize(
    ("hosts", "partners"),
    [
        (1, [1, 0, 3, 2, None]),
        (2, [2, 3, 0, 1]),
        (2, [3, 4, 5, 0, 1, 2]),
        (3, [1, 0, None]),
        (3, [3, 4, 5, 0, 1, 2]),
        (4, [2, 3, 0, 1]),
    ],
)
def test_messages_go_to_neighbours_or_to_another_host(hosts, partners):
    ranks = len(partners)
    cell = Cell(ranks, "exchange", "float32", "numpy", "sync", 8, hosts)
    assert [cell.partner(rank) for rank in range(ranks)] == partners
    for rank, partner in enumerate(partners):
        if partner is not None and hosts > 1:
            assert rank * hosts // ranks != partner * hosts // ranks
