"""Random calls of every collective, each with what it must give.

A `Case` is one call: dtype, counts, layouts, root, reduce op, in which form each rank
makes it, and what each contributes. `OPERATIONS` has a function per collective that
makes the call as one rank, with guard bytes around every array and inputs that cannot
be written, and holds the outcome against NumPy.
"""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest

import allhands as dist
from allhands import ReduceOp
from harness.arrays import (
    DTYPES,
    FLAT,
    INTEGERS,
    LAYOUTS,
    Guarded,
    as_tensors,
    check_reduced,
    random_values,
    supports,
)

# Plain calls, and what persistent requests can do.
FORMS = ["sync", "async", "run", "start"]
REDUCE_OPS = [op.name for op in ReduceOp.RedOpType]


@dataclass
class Case:
    """One call; `inputs[r][i]` is what rank r contributes to part i."""

    number: int
    seed: int
    dtype: np.dtype
    op: str
    factors: list
    root: int
    forms: list
    inputs: list
    block: object = None  # where arrays get their memory, see Guarded
    has_tensors: bool = False
    """Half of the ranks pass torch tensors."""

    def __str__(self):
        counts = [[part.size for part in parts] for parts in self.inputs]
        return (
            f"case {self.number} of seed {self.seed}: {self.dtype} {self.op} root "
            f"{self.root} forms {self.forms} counts {counts}"
        )

    @property
    def size(self):
        return len(self.inputs)

    def column(self, part):
        """What all ranks contribute to `part`."""
        return [parts[part] for parts in self.inputs]

    def layout(self, *place, flat=False):
        """The layout of an array, by numbers that tell it apart; `flat`: rows are 1."""
        layouts = FLAT if flat else LAYOUTS
        if self.block and self.number % 4:  # else they seldom are on all ranks
            layouts = ["contiguous", "unaligned"]
        return layouts[hash((self.seed, self.number, *place)) % len(layouts)]

    def read(self, values, *place, flat=False):
        """An array that may only be read."""
        is_same = not self.block and values.size > 1 and np.all(values == values[0])
        layout = "expanded" if is_same else self.layout(*place, flat=flat)
        guarded = Guarded(values, layout, self.block)
        if not is_same:  # numpy could not take it back, see as_tensors
            guarded.array.flags.writeable = False
        guarded.expected = values
        return guarded

    def write(self, count, *place, flat=False):
        """An array to be written."""
        layout = self.layout(*place, flat=flat)
        return Guarded(np.zeros(count, self.dtype), layout, self.block)

    def whole(self, rank, *, written):
        """The only array of a rank, which is written where `written` says so."""
        values = self.inputs[rank][0]
        if written:
            return Guarded(values, self.layout(rank), self.block)
        return self.read(values, rank)

    def passed(self, arguments):
        """The arguments as this rank passes them: in some cases as tensors."""
        if not self.has_tensors or (self.number + dist.get_rank()) % 2:
            return arguments
        return as_tensors(arguments)

    def reduce_op(self, rank):
        """What this rank passes as `op`."""
        if self.op == "PREMUL_SUM":
            return ReduceOp.PREMUL_SUM(self.factors[rank])
        return getattr(ReduceOp, self.op)

    def call(self, function, *arguments, **options):
        """Call it in this rank's form and wait for it."""
        arguments = self.passed(arguments)
        form = self.forms[dist.get_rank()]
        prepare = getattr(dist, f"{function.__name__}_init", None)
        if form in ("run", "start") and prepare is not None:
            request = prepare(*arguments, **options)
            if form == "run":
                assert request() is None
            else:
                assert request.start() is None
                assert request.wait()
            return
        work = function(*arguments, async_op=form == "async", **options)
        assert (work is not None) == (form == "async")
        if work is not None:
            assert work.wait()

    def reduces(self, function, *arguments, **options):
        """The same of a reduction; False if it was refused, as it must be."""
        if supports(self.op, self.dtype):
            self.call(function, *arguments, **options)
            return True
        with pytest.raises((ValueError, TypeError, RuntimeError), match=self.op):
            self.call(function, *arguments, **options)
        return False

    def check_reduced(self, result, part, num_ranks=None):
        """Hold that `result` is the reduction of what was contributed to `part`.

        `num_ranks`: by the first so many ranks.
        """
        ranks = slice(num_ranks)
        check_reduced(result, self.column(part)[ranks], self.op, self.factors[ranks])


def draw(name, size, seed, number, usual=None, block=None):
    """The cases of one seed for the operation `name` on `size` ranks.

    `usual` are the counts of most parts; `block` gives the arrays their memory.
    """
    usual = usual or [0, 1, 7, size - 1, size + 1, 63, 64, 65, 257, 1000]
    generator = np.random.default_rng([seed, size])
    for index in range(number):
        counts = _counts(generator, size, usual, *SHAPES[name])
        dtype = DTYPES[generator.integers(len(DTYPES))]
        integral = dtype in INTEGERS
        factors = _integers(generator, size) if integral else None
        yield Case(
            index,
            seed,
            dtype,
            REDUCE_OPS[generator.integers(len(REDUCE_OPS))],
            (generator.uniform(-2, 2, size) if factors is None else factors).tolist(),
            int(generator.integers(size)),
            generator.choice(FORMS, size).tolist(),
            [[random_values(generator, dtype, n) for n in row] for row in counts],
            block,
        )


def _integers(generator, size):
    """Factors of integers: small ones, and some that no float holds."""
    wide = generator.integers(-(2**63), 2**63, size)
    return np.where(
        generator.random(size) < 0.25, wide, generator.integers(-3, 4, size)
    )


def _count(generator, usual, num_parts):
    if generator.random() < 0.02:
        return int(generator.choice([40_003, 150_001])) // num_parts
    return int(generator.choice(usual))


def _counts(generator, size, usual, num_parts, uneven):
    """counts[rank][part], where `uneven` says what they depend on."""
    parts = range(size if num_parts == "ranks" else 1)

    def count():
        return _count(generator, usual, len(parts))

    if uneven == "any":
        return [[count() for _ in parts] for _ in range(size)]
    one, various = count(), [count() for _ in range(size)]
    if uneven == "" or generator.random() < 0.5:
        return [[one for _ in parts] for _ in range(size)]
    if uneven == "rank":
        return [[various[rank] for _ in parts] for rank in range(size)]
    return [[various[part] for part in parts] for _ in range(size)]


# How many parts each rank contributes, and what their sizes may depend on.
SHAPES = {
    "all_reduce": ("one", ""),
    "reduce": ("one", ""),
    "scan": ("one", ""),
    "exscan": ("one", ""),
    "reduce_scatter": ("ranks", "part"),
    "reduce_scatter_single": ("ranks", ""),
    "broadcast": ("one", ""),
    "all_gather": ("one", "rank"),
    "all_gather_single": ("one", ""),
    "gather": ("one", ""),
    "gather_single": ("one", ""),
    "scatter": ("ranks", ""),
    "all_to_all": ("ranks", "any"),
    "all_to_all_single": ("ranks", "any"),
}


def _check(*arrays):
    """Hold that nothing but outputs was written."""
    for guarded in arrays:
        guarded.check()
        if guarded.expected is not None:
            assert guarded.values().tobytes() == guarded.expected.tobytes()


def _all_reduce(rank, case):
    mine = Guarded(case.inputs[rank][0], case.layout(rank), case.block)
    if case.reduces(dist.all_reduce, mine.array, case.reduce_op(rank)):
        case.check_reduced(mine.values(), 0)
    else:
        np.testing.assert_array_equal(mine.values(), case.inputs[rank][0])
    _check(mine)
    return mine.values().tobytes() if supports(case.op, case.dtype) else b""


def _reduce(rank, case):
    mine = case.whole(rank, written=rank == case.root)
    op = case.reduce_op(rank)
    done = case.reduces(dist.reduce, mine.array, op=op, group_dst=case.root)
    if done and rank == case.root:
        case.check_reduced(mine.values(), 0)
    _check(mine)


def _scan(rank, case):
    _prefix(rank, case, dist.scan, rank + 1)


def _exscan(rank, case):
    _prefix(rank, case, dist.exscan, rank)


def _prefix(rank, case, function, num_ranks):
    is_in_place = case.number % 3 == 0
    mine = case.whole(rank, written=is_in_place)
    output = mine if is_in_place else case.write(mine.count, rank, -1)
    before = output.values().copy()
    op = case.reduce_op(rank)
    done = case.reduces(function, output.array, mine.array, op)
    if done and num_ranks > 0:
        case.check_reduced(output.values(), 0, num_ranks)
    else:
        assert output.values().tobytes() == before.tobytes()
    _check(mine, output)


def _reduce_scatter(rank, case):
    parts = [case.read(v, rank, i) for i, v in enumerate(case.inputs[rank])]
    output = case.write(case.inputs[rank][rank].size, rank, -1)
    inputs = [part.array for part in parts]
    op = case.reduce_op(rank)
    if case.reduces(dist.reduce_scatter, output.array, inputs, op):
        case.check_reduced(output.values(), rank)
    _check(output, *parts)


def _reduce_scatter_single(rank, case):
    whole = case.read(np.concatenate(case.inputs[rank]), rank)
    output = case.write(case.inputs[rank][rank].size, rank, -1)
    op = case.reduce_op(rank)
    if case.reduces(dist.reduce_scatter_single, output.array, whole.array, op):
        case.check_reduced(output.values(), rank)
    _check(output, whole)


def _broadcast(rank, case):
    mine = case.whole(rank, written=rank != case.root)
    case.call(dist.broadcast, mine.array, group_src=case.root)
    assert mine.values().tobytes() == case.inputs[case.root][0].tobytes()
    _check(mine)


def _all_gather(rank, case):
    mine = case.read(case.inputs[rank][0], rank)
    outputs = [case.write(v.size, rank, i) for i, v in enumerate(case.column(0))]
    case.call(dist.all_gather, [output.array for output in outputs], mine.array)
    _check_moved(outputs, case.column(0))
    _check(mine, *outputs)


def _all_gather_single(rank, case):
    mine = case.read(case.inputs[rank][0], rank)
    output = case.write(mine.count * case.size, rank, -1)
    case.call(dist.all_gather_single, output.array, mine.array)
    _check_moved([output], [np.concatenate(case.column(0))])
    _check(mine, output)


def _gather(rank, case):
    mine = case.read(case.inputs[rank][0], rank)
    outputs = [case.write(mine.count, rank, i) for i in range(case.size)]
    listed = [output.array for output in outputs] if rank == case.root else None
    case.call(dist.gather, mine.array, listed, group_dst=case.root)
    if rank == case.root:
        _check_moved(outputs, case.column(0))
    _check(mine, *outputs)


def _gather_single(rank, case):
    mine = case.read(case.inputs[rank][0], rank)
    output = case.write(mine.count * case.size, rank, -1)
    whole = output.array if rank == case.root else None
    case.call(dist.gather_single, mine.array, whole, group_dst=case.root)
    if rank == case.root:
        _check_moved([output], [np.concatenate(case.column(0))])
    _check(mine, output)


def _scatter(rank, case):
    parts = [case.read(v, rank, i) for i, v in enumerate(case.inputs[rank])]
    listed = [part.array for part in parts] if rank == case.root else None
    output = case.write(parts[0].count, rank, -1)
    case.call(dist.scatter, output.array, listed, group_src=case.root)
    _check_moved([output], [case.inputs[case.root][rank]])
    _check(output, *parts)


def _all_to_all(rank, case):
    parts = [case.read(v, rank, i) for i, v in enumerate(case.inputs[rank])]
    outputs = [case.write(v.size, i, rank) for i, v in enumerate(case.column(rank))]
    arrays = [output.array for output in outputs]
    case.call(dist.all_to_all, arrays, [part.array for part in parts])
    _check_moved(outputs, case.column(rank))
    _check(*parts, *outputs)


def _all_to_all_single(rank, case):
    sent, received = case.inputs[rank], case.column(rank)
    whole = case.read(np.concatenate(sent), rank, flat=True)
    output = case.write(sum(v.size for v in received), rank, -1, flat=True)
    case.call(
        dist.all_to_all_single,
        output.array,
        whole.array,
        [v.size for v in received],
        [v.size for v in sent],
    )
    _check_moved([output], [np.concatenate(received)])
    _check(whole, output)


def _check_moved(outputs, expected):
    for output, values in itertools.zip_longest(outputs, expected):
        assert output.values().tobytes() == values.tobytes()


OPERATIONS = {
    "all_reduce": _all_reduce,
    "reduce": _reduce,
    "scan": _scan,
    "exscan": _exscan,
    "reduce_scatter": _reduce_scatter,
    "reduce_scatter_single": _reduce_scatter_single,
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    "all_gather_single": _all_gather_single,
    "gather": _gather,
    "gather_single": _gather_single,
    "scatter": _scatter,
    "all_to_all": _all_to_all,
    "all_to_all_single": _all_to_all_single,
}
