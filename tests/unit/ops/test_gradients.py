"""`average_gradients`: what goes together, when it starts, and what is refused."""

from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from allhands.groups.world import current
from harness.ranks import outcomes, run_ranks


class Watch:
    """Notes the operations of this rank."""

    def __init__(self):
        self.seen = []

    def before(self, operation):
        self.seen.append((operation.op, operation.dtype, operation.count))
        return 0

    def after(self, token, error):
        pass


def watch():
    watching = Watch()
    current().observe(watching)
    return watching.seen


def of(dtype, *counts):
    return [np.ones(count, dtype) for count in counts]


def test_arrays_of_a_dtype_go_together_until_their_bucket_is_full():
    def body(rank):
        seen = watch()
        cap = 40 / (1 << 20)
        dist.average_gradients(
            [*of("f4", 4, 6), *of("f8", 5), *of("f4", 1, 100, 9, 1), *of("i2", 3)],
            bucket_cap_mb=cap,
        )
        return seen

    many, one = "all_reduce_coalesced", "all_reduce"
    assert run_ranks(2, body) == 2 * [
        [
            (many, "float32", 10),
            (one, "float32", 1),
            (one, "float32", 100),
            (many, "float32", 10),
            (one, "float64", 5),
            (one, "int16", 3),
        ]
    ]


def test_a_bucket_is_on_its_way_while_the_next_array_is_computed():
    def body(rank):
        seen = watch()
        when = []

        def backward():
            for array in of("f4", 8, 8, 8):
                when.append(len(seen))
                yield array

        dist.average_gradients(backward(), bucket_cap_mb=1e-6)
        return when, len(seen)

    assert run_ranks(2, body) == [([0, 0, 1], 3)] * 2


def test_in_place_over_a_group():
    def body(rank):
        pair = dist.new_group([0, 2])
        arrays = [np.full((2, 3), rank, "f4").T, np.full(2, 10 * rank, "i8")]
        arrays.append(arrays[0][1:])  # of the same memory
        if rank == 1:
            with pytest.warns(UserWarning, match="average_gradients on global rank 1"):
                assert dist.average_gradients(arrays, pair) is None
        else:
            work = dist.average_gradients(arrays, pair, async_op=True)
            assert work.wait(timedelta(seconds=100))
            assert all(a is b for a, b in zip(work.result(), arrays, strict=True))
        return [array.ravel().tolist() for array in arrays]

    one, other, two = run_ranks(3, body)
    assert one == two == [[1] * 6, [10, 10], [1] * 4]
    assert other == [[1] * 6, [10, 10], [1] * 4]


def test_no_arrays_are_no_operation():
    def body(rank):
        seen = watch()
        assert dist.average_gradients([]) is None
        assert dist.average_gradients(iter(()), async_op=True).wait()
        return seen

    assert run_ranks(2, body) == [[], []]


def test_sparse_gradients_are_averaged_among_dense_ones():
    torch = pytest.importorskip("torch")

    def body(rank):
        sparse = torch.sparse_coo_tensor(
            [[rank, 2]], [2.0, 4.0], (3,), check_invariants=True
        )
        dense = torch.full((2,), float(rank))
        dist.average_gradients([dense, sparse, np.full(1, rank, "f4")])
        return dense.tolist(), sparse.to_dense().tolist()

    assert run_ranks(2, body) == [([0.5, 0.5], [1, 1, 4])] * 2


def test_different_lists_are_told_on_every_rank():
    def body(rank):
        with pytest.raises(dist.CollectiveMismatchError) as raised:
            dist.average_gradients(of("f4", 2, 3 + rank))
        dist.average_gradients(of("f4", 2, 3))
        return "count 5" in str(raised.value), "count 6" in str(raised.value)

    assert run_ranks(2, body) == [(True, True)] * 2


def test_nothing_is_written_any_more_once_an_array_was_refused():
    def body(rank):
        arrays = [np.full(1 << 20, rank, "f4") for _ in range(3)]
        with pytest.raises(TypeError):
            dist.average_gradients([*arrays, "x"])
        return [set(array.tolist()) for array in arrays]

    for rank, values in enumerate(run_ranks(2, body)):
        assert values == [{0.5}, {0.5}, {float(rank)}]


@pytest.mark.parametrize(
    ("arrays", "options", "error", "message"),
    [
        ([np.ones(1), "x"], {}, TypeError, "Expected parameter `arrays` of an array"),
        (np.ones(2), {}, TypeError, "got one array of 2 numbers; pass [array]"),
        (of("?", 2), {}, TypeError, "AVG"),
        ([np.broadcast_to(np.ones(1), 3)], {}, ValueError, "read-only"),
        (None, {}, TypeError, "another iterable of arrays, got NoneType"),
        ({"w": np.ones(2)}, {}, TypeError, "got dict; pass its values()"),
        ([], {"bucket_cap_mb": "1"}, TypeError, "must be a number, got '1'"),
        ([], {"bucket_cap_mb": 0}, ValueError, "must be positive, got 0"),
        ([], {"bucket_cap_mb": float("nan")}, ValueError, "must be positive, got nan"),
    ],
)
def test_what_is_refused(arrays, options, error, message):
    def body(rank):
        dist.average_gradients(arrays, **options)

    [raised] = outcomes(1, body)
    assert isinstance(raised, error)
    assert message in str(raised)
