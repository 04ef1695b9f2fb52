"""Arrays for a cell: what an operation must leave is known, and a wrong one is seen."""

import numpy as np
import pytest

from allhands.bench.cells import DTYPES, OPERATIONS, Cell
from allhands.bench.data import Data, fresh_zeros

RANKS = 3


def data_of(op, dtype="float32", size=1000):
    cell = Cell(RANKS, op, dtype, "numpy", "sync", size)
    ranks = [Data(cell, rank) for rank in range(RANKS)]
    for data in ranks:
        data.fill()
    return ranks


def perform(op, ranks):
    """The operation, by NumPy alone."""
    op = op.removesuffix("_single")
    inputs, outputs = [d.input for d in ranks], [d.output for d in ranks]
    parts = [None if x is None else np.array_split(x, RANKS) for x in inputs]
    if op in ("all_reduce", "reduce"):
        total = sum(x.astype(np.float64) for x in outputs)
        for output in outputs if op == "all_reduce" else outputs[:1]:
            output[:] = total
    elif op == "broadcast":
        for output in outputs[1:]:
            output[:] = outputs[0]
    elif op in ("all_gather", "gather"):
        for output in outputs:
            if output is not None:
                output[:] = np.concatenate(inputs)
    elif op == "reduce_scatter":
        for output, total in zip(
            outputs,
            np.array_split(sum(x.astype(np.float64) for x in inputs), 3),
            strict=True,
        ):
            output[:] = total
    elif op == "all_to_all":
        for rank, output in enumerate(outputs):
            output[:] = np.concatenate([part[rank] for part in parts])
    elif op == "scatter":
        for rank, output in enumerate(outputs):
            output[:] = parts[0][rank]
    elif op in ("send_recv", "exchange"):
        outputs[0][:], outputs[1][:] = inputs[1], inputs[0]


MOVING = [op for op in OPERATIONS if op != "barrier"]


@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("dtype", [name for name in DTYPES if name != "bfloat16"])
def test_what_the_operation_leaves_passes(op, dtype):
    ranks = data_of(op, dtype)
    perform(op, ranks)
    for data in ranks:
        data.check()
        data.clear()
        for array in (data.input, data.output):
            assert array is None or not array.any()


def test_bfloat16():
    pytest.importorskip("ml_dtypes")
    ranks = data_of("all_reduce", "bfloat16")
    assert ranks[0].output.dtype.name == "bfloat16"
    perform("all_reduce", ranks)
    for data in ranks:
        data.check()


@pytest.mark.parametrize("op", MOVING)
@pytest.mark.parametrize("index", [0, 100, -1])
def test_one_wrong_element_is_seen(op, index):
    ranks = data_of(op)
    perform(op, ranks)
    output = ranks[0].output
    output[index if abs(index) < len(output) else 0] += 1
    with pytest.raises(ValueError, match=f"^{op}: wrong result on rank 0$"):
        ranks[0].check()


@pytest.mark.parametrize("op", MOVING)
def test_an_operation_that_did_nothing_is_seen(op):
    wrong = 0
    for data in data_of(op):
        try:
            data.check()
        except ValueError:
            wrong += 1
    assert wrong


@pytest.mark.parametrize("num_bytes", [4, 4096, 8 << 20])
def test_arrays_begin_on_pages_of_their_own_and_are_zeros(num_bytes):
    arrays = [fresh_zeros(num_bytes // 4, np.dtype(np.float32)) for _ in range(3)]
    for array in arrays:
        assert array.nbytes == num_bytes
        assert array.ctypes.data % 4096 == 0
        assert not array.any()
        array[:] = 1  # nobody else's
