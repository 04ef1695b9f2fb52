"""Calls of collectives, first on CPU memory, then the same on a device."""

from dataclasses import replace

import numpy as np

from allhands.backends.call import Call
from harness.device_arrays import Hidden

SIZE = 3


def numbers(rank):
    return np.arange(5.0) + 10 * rank


def _on_device(arrays):
    if isinstance(arrays, list):
        return [_on_device(array) for array in arrays]
    return None if arrays is None else Hidden(arrays)


def on_device(call):
    """The call with arrays on the device; they share the memory of those given."""
    output = _on_device(call.output)
    given = output if call.input is call.output else _on_device(call.input)
    return replace(call, output=output, input=given)


def values(arrays):
    if isinstance(arrays, list):
        return [values(array) for array in arrays]
    return None if arrays is None else arrays.tolist()


def calls(rank):
    """A Call of each operation but messages and scans, with arrays in CPU memory."""
    rows = [numbers(rank) + peer for peer in range(SIZE)]
    blank = np.full(5, -1.0)
    is_root = rank == 1
    for op in ("all_reduce", "reduce", "broadcast"):
        array = numbers(rank)
        yield Call(op, array, array, root=1 if op != "all_reduce" else -1)
    yield Call("all_gather", [blank.copy() for _ in range(SIZE)], numbers(rank))
    uneven = [np.zeros(peer + 1) for peer in range(SIZE)]
    yield Call("all_gather", uneven, numbers(rank)[: rank + 1])
    yield Call("all_gather_single", np.zeros(5 * SIZE), numbers(rank))
    places = [blank.copy() for _ in range(SIZE)] if is_root else None
    yield Call("gather", places, numbers(rank), root=1)
    yield Call("scatter", blank.copy(), rows if is_root else None, root=1)
    yield Call("reduce_scatter", blank.copy(), rows)
    yield Call("reduce_scatter_single", blank.copy(), np.concatenate(rows))
    yield Call("all_to_all", [blank.copy() for _ in range(SIZE)], rows)
    splits = [1, 2, 2]
    theirs = [splits[rank]] * SIZE
    yield Call(
        "all_to_all_single",
        np.zeros(sum(theirs)),
        numbers(rank),
        output_splits=theirs,
        input_splits=splits,
    )
    arrays = [numbers(rank), numbers(rank)[:2].copy()]
    yield Call("all_reduce_coalesced", arrays, arrays)
    whole = np.zeros(2 * SIZE)
    whole[2 * rank : 2 * rank + 2] = rank
    yield Call("all_gather_single", whole, whole[2 * rank : 2 * rank + 2])  # in place
    whole = numbers(rank)[:3].copy()
    yield Call("all_gather_single", whole, whole[1:2])  # shares memory otherwise
    column = (np.zeros((4, 3)) + rank)[:, 1]
    yield Call("all_reduce", column, column)
