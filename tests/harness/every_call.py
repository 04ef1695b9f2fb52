"""A call of each operation, and what it is to leave behind."""

import numpy as np

from allhands.backends.call import Call

SIZE = 3
ROOT = 1


def numbers(rank, length=4):
    return np.arange(length, dtype=np.float64) + 10 * rank


def nothing(length=4):
    return np.full(length, -1.0)


def list_of(make):
    return [make() for _ in range(SIZE)]


ALL = [numbers(rank) for rank in range(SIZE)]
TOTAL = sum(ALL)


def everything_of(rank):
    """A Call of each collective on this rank, and what it is to leave there."""
    is_root = rank == ROOT
    summed, reduced, copied = numbers(rank), numbers(rank), numbers(rank)
    rows = [numbers(rank) + 100 * peer for peer in range(SIZE)]
    mine = [numbers(peer) + 100 * rank for peer in range(SIZE)]
    scattered = sum(mine)
    return [
        (Call("all_reduce", summed, summed), TOTAL),
        (
            Call("reduce", reduced, reduced, root=ROOT),
            TOTAL if is_root else numbers(rank),
        ),
        (Call("reduce_scatter", nothing(), rows), scattered),
        (Call("reduce_scatter_single", nothing(), np.concatenate(rows)), scattered),
        (Call("broadcast", copied, copied, root=ROOT), numbers(ROOT)),
        (Call("all_gather", list_of(nothing), numbers(rank)), ALL),
        (
            Call("all_gather_single", nothing(4 * SIZE), numbers(rank)),
            np.concatenate(ALL),
        ),
        (
            Call(
                "gather",
                list_of(nothing) if is_root else None,
                numbers(rank),
                root=ROOT,
            ),
            ALL if is_root else [],
        ),
        (
            Call(
                "gather_single",
                nothing(4 * SIZE) if is_root else None,
                numbers(rank),
                root=ROOT,
            ),
            np.concatenate(ALL) if is_root else [],
        ),
        (
            Call("scatter", nothing(), ALL if is_root else None, root=ROOT),
            numbers(rank),
        ),
        (Call("all_to_all", list_of(nothing), rows), mine),
        (
            Call("all_to_all_single", nothing(4 * SIZE), np.concatenate(rows)),
            np.concatenate(mine),
        ),
        (Call("barrier"), []),
    ]


def coalesced_of(rank):
    """A Call of each coalesced operation on this rank, and what it is to leave."""
    lengths = (4, 2)
    summed = [numbers(rank, length) for length in lengths]
    wide = [np.concatenate([numbers(rank, n)] * SIZE) for n in lengths]
    mine = [numbers(rank, length) for length in lengths]
    of_all = [[numbers(peer, n) for n in lengths] for peer in range(SIZE)]
    sums = [sum(row[i] for row in of_all) for i in range(2)]
    whole = [np.concatenate([row[i] for row in of_all]) for i in range(2)]
    return [
        (Call("all_reduce_coalesced", summed, summed), sums),
        (
            Call(
                "all_gather_coalesced",
                [[nothing(length) for length in lengths] for _ in range(SIZE)],
                mine,
            ),
            of_all,
        ),
        (
            Call(
                "all_gather_single_coalesced",
                [nothing(length * SIZE) for length in lengths],
                mine,
            ),
            whole,
        ),
        (
            Call(
                "reduce_scatter_single_coalesced",
                [nothing(length) for length in lengths],
                wide,
            ),
            sums,
        ),
    ]


def flat(arrays):
    parts = [flat(part) if isinstance(part, list) else [part] for part in arrays]
    return [array for part in parts for array in part]


def unlike(call, expected):
    outputs = call.outputs()
    wanted = expected if isinstance(call.output, list) else [expected][: len(outputs)]
    return [
        (call.op, output, want)
        for output, want in zip(outputs, wanted, strict=True)
        if not np.array_equal(output, want)
    ]
