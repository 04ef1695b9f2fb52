"""What runs: every operation on every dtype, and every reduction, tried on two ranks.

`python -m harness.support` in the folder `tests` writes the page of it,
docs/reference/support.md.
"""

import itertools
import pathlib

import ml_dtypes
import numpy as np

import allhands as dist
from allhands import ReduceOp
from harness.arrays import DTYPES, MOVED, check_reduced
from harness.ranks import run_ranks

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "reference" / "support.md"
OUTSIDE = [np.dtype(ml_dtypes.float8_e4m3), np.dtype("M8[s]"), np.dtype("U1")]
SIZE = 2


def at(root, tensors):
    """The list that only the root of a gather or scatter passes."""
    return tensors if dist.get_rank() == root else None


def pair(array):
    return [np.zeros_like(array) for _ in range(SIZE)]


def _all_gather(x):
    outputs = pair(x)
    dist.all_gather(outputs, x)
    return np.concatenate(outputs)


def _all_gather_single(x):
    output = np.concatenate(pair(x))
    dist.all_gather_single(output, x)
    return output


def _broadcast(x):
    output = x.copy()
    dist.broadcast(output, 0)
    return output


def _gather(x):
    outputs = pair(x)
    dist.gather(x, at(0, outputs), 0)
    dist.broadcast(outputs[0], 0)
    dist.broadcast(outputs[1], 0)
    return np.concatenate(outputs)


def _gather_single(x):
    output = np.concatenate(pair(x))
    dist.gather_single(x, at(0, output), 0)
    dist.broadcast(output, 0)
    return output


def _scatter(x):
    output = np.zeros_like(x)
    dist.scatter(output, at(0, [x, x]), 0)
    return output


def _all_to_all(x):
    outputs = pair(x)
    dist.all_to_all(outputs, [x, x])
    return np.concatenate(outputs)


def _all_to_all_single(x):
    output = np.concatenate(pair(x))
    dist.all_to_all_single(output, np.concatenate([x, x]))
    return output


def _all_reduce(x, op):
    output = x.copy()
    dist.all_reduce(output, op)
    return output


def _reduce(x, op):
    output = x.copy()
    dist.reduce(output, 0, op)
    dist.broadcast(output, 0)
    return output


def _scan(x, op):
    output = np.zeros_like(x)
    dist.scan(output, x, op)
    dist.broadcast(output, SIZE - 1)
    return output


def _exscan(x, op):
    longer = np.zeros_like(x)
    dist.exscan(longer, x, op)
    dist.broadcast(longer, SIZE - 1)
    return longer


def _reduce_scatter(x, op):
    output = np.zeros_like(x)
    dist.reduce_scatter(output, [x, x], op)
    return output


def _reduce_scatter_single(x, op):
    output = np.zeros_like(x)
    dist.reduce_scatter_single(output, np.concatenate([x, x]), op)
    return output


# Whether a rank ends with what rank 0 passed, or with what each rank passed.
MOVES = {
    "broadcast": (_broadcast, "first"),
    "all_gather": (_all_gather, "all"),
    "all_gather_single": (_all_gather_single, "all"),
    "gather": (_gather, "all"),
    "gather_single": (_gather_single, "all"),
    "scatter": (_scatter, "first"),
    "all_to_all": (_all_to_all, "all"),
    "all_to_all_single": (_all_to_all_single, "all"),
}
REDUCTIONS = {
    "all_reduce": _all_reduce,
    "reduce": _reduce,
    "scan": _scan,
    "exscan": _exscan,
    "reduce_scatter": _reduce_scatter,
    "reduce_scatter_single": _reduce_scatter_single,
}


def inputs_of(dtype):
    """What each of the ranks passes."""
    return [np.array([rank + 1, 1, 0]).astype(dtype) for rank in range(SIZE)]


def attempt(work):
    """Its result, or the name of the error that it raised: Python's own class."""
    try:
        return work()
    except (TypeError, ValueError, RuntimeError) as error:
        kinds = type(error).__mro__
        return next(kind for kind in kinds if kind.__module__ == "builtins").__name__


def tried():
    """{(operation, dtype name, reduce op or ""): "yes" or the name of an error}."""

    def body(rank):
        found = {}
        for dtype in [*DTYPES, *MOVED, *OUTSIDE]:
            inputs = inputs_of(dtype)
            for name in MOVES:
                found[name, dtype.name, ""] = try_move(name, inputs, inputs[rank])
            for name, op in itertools.product(REDUCTIONS, ReduceOp.RedOpType):
                word = try_reduction(name, op, inputs, inputs[rank])
                found[name, dtype.name, op.name] = word
        return found

    first, second = run_ranks(SIZE, body)
    assert first == second
    return first


def try_move(name, inputs, mine):
    """A word for what became of it."""
    call, kept = MOVES[name]
    result = attempt(lambda: call(mine))
    if isinstance(result, str):
        return result
    expected = inputs[0] if kept == "first" else np.concatenate(inputs)
    assert result.tobytes() == expected.tobytes(), (name, mine.dtype)
    return "yes"


def try_reduction(name, kind, inputs, mine):
    """A word for what became of it."""
    op = ReduceOp.PREMUL_SUM(2) if kind.name == "PREMUL_SUM" else kind
    result = attempt(lambda: REDUCTIONS[name](mine, op))
    if isinstance(result, str):
        return result
    last = SIZE - (name == "exscan")  # of the ranks that the last one's result is of
    check_reduced(result, inputs[:last], kind.name, [2] * last)
    return "yes"


def table(head, rows):
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def page():
    """The text of the page."""
    found = tried()
    names = [dtype.name for dtype in [*DTYPES, *MOVED, *OUTSIDE]]
    moves = table(
        ["dtype", *(f"`{name}`" for name in MOVES)],
        [[name, *(found[move, name, ""] for move in MOVES)] for name in names],
    )
    reductions = "".join(
        f"\n## {' and '.join(f'`{name}`' for name in alike)}\n\n"
        + table(
            ["dtype", *(kind.name for kind in ReduceOp.RedOpType)],
            [
                [n, *(found[alike[0], n, kind.name] for kind in ReduceOp.RedOpType)]
                for n in names
            ],
        )
        + "\n"
        for alike in _alike(found, names)
    )
    return _TEXT.format(moves=moves, reductions=reductions)


def _alike(found, names):
    """The reductions, those with the same table together."""
    by_content = {}
    for name in REDUCTIONS:
        content = tuple(
            found[name, dtype, kind.name]
            for dtype in names
            for kind in ReduceOp.RedOpType
        )
        by_content.setdefault(content, []).append(name)
    return list(by_content.values())


_TEXT = """# What runs: operation x dtype x reduce operation

Made by trying each on two ranks with NumPy arrays, in sync with the package by a test.
"yes" is a right result on both ranks; otherwise the call raises what is named, on every
rank, and communicates nothing. PREMUL_SUM was tried with an integer factor; other
factors are a `ValueError` for integers. torch tensors of the same dtypes give the same;
sparse ones (COO) do in `all_reduce`, and are a `RuntimeError` elsewhere.

## Operations that move arrays

{moves}
{reductions}"""

if __name__ == "__main__":
    PAGE.write_text(page())
