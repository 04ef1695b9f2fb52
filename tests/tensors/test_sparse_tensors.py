"""all_reduce of sparse tensors: what all_reduce of the dense ones gives, to the bit."""

import threading
from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from allhands import ReduceOp
from harness.arrays import DTYPES, random_values, supports
from harness.ranks import LIMIT, outcomes, run_ranks

torch = pytest.importorskip("torch")

OPS = ["SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"]
# The dense shape and how many of its dimensions are sparse.
SHAPES = [((7,), 1), ((4, 3), 2), ((4, 3), 1), ((2, 3, 5), 2), ((), 0), ((2, 0), 1)]


@pytest.fixture(autouse=True)
def checked():
    """torch warns where it was not said whether to check indices."""
    with torch.sparse.check_sparse_tensor_invariants():
        yield


def sparse(indices, values, shape):
    return torch.sparse_coo_tensor(
        torch.tensor(indices), torch.tensor(values), shape, check_invariants=True
    )


def bits(tensor):
    return tensor.clone().view(-1).view(torch.uint8).tolist()


def dtypes():
    return [
        dtype for dtype in DTYPES if dtype.name not in ("uint16", "uint32", "uint64")
    ]


def random_tensor(generator, dtype, shape, sparse_dim):
    """Zero in about half of its rows, with each other row once."""
    values = random_values(generator, dtype, int(np.prod(shape))).reshape(shape)
    if dtype.name == "bfloat16":
        dense = torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)
    else:
        dense = torch.from_numpy(values)
    for row in np.ndindex(shape[:sparse_dim]):
        dense[row] *= bool(generator.random() < 0.5)
    return dense.to_sparse(sparse_dim) if sparse_dim else dense.to_sparse()


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("op", OPS)
def test_result_is_that_of_the_dense_tensors(size, op):
    kind = ReduceOp.PREMUL_SUM(3) if op == "PREMUL_SUM" else ReduceOp.RedOpType[op]

    def body(rank):
        generator = np.random.default_rng([rank, OPS.index(op)])
        for dtype in filter(lambda dtype: supports(op, dtype), dtypes()):
            for shape, sparse_dim in SHAPES:
                tensor = random_tensor(generator, dtype, shape, sparse_dim)
                dense = tensor.to_dense()
                dist.all_reduce(dense, kind)
                dist.all_reduce(tensor, kind)
                assert tensor.is_coalesced()
                assert tensor.sparse_dim() == sparse_dim
                rows = tuple(tensor.indices())
                picked = dense[rows] if rows else dense.repeat(tensor._nnz())
                assert bits(tensor.values()) == bits(picked), (dtype, shape)
                dense[rows] = 0
                assert not dense.count_nonzero()

    run_ranks(size, body)


def test_rows_are_those_of_all_ranks_in_order():
    def body(rank):
        tensor = sparse([[1, 3 - rank]], [2.0, 10.0 + rank], (5,))
        dist.all_reduce(tensor)
        return tensor.indices().tolist(), tensor.values().tolist()

    assert run_ranks(2, body) == [([[1, 2, 3]], [4.0, 11.0, 10.0])] * 2


def test_a_row_that_cancels_out_stays():
    def body(rank):
        tensor = sparse([[1]], [1.0 - 2 * rank], (5,))
        dist.all_reduce(tensor)
        return tensor.indices().tolist(), tensor.values().tolist()

    assert run_ranks(2, body) == [([[1]], [0.0])] * 2


def test_equal_indices_of_one_rank_are_added_up():
    def body(rank):
        tensor = sparse([[3, 0, 3]], [1.0, 2.0, 4.0], (5,))
        assert not tensor.is_coalesced()
        dist.all_reduce(tensor)
        return tensor.to_dense().tolist()

    assert run_ranks(2, body) == [[4, 0, 0, 10, 0]] * 2


def test_ranks_may_have_nothing():
    def body(rank):
        some = sparse([[2]], [1.0], (5,)) if rank == 1 else torch.zeros(5).to_sparse()
        dist.all_reduce(some)
        none = torch.zeros(5).to_sparse()
        dist.all_reduce(none)
        assert none.is_coalesced()
        return some.to_dense().tolist(), none._nnz()

    assert run_ranks(3, body) == [([0, 0, 1, 0, 0], 0)] * 3


def test_more_rows_than_a_chunk_holds():
    num_rows = 200_000

    def body(rank):
        rows = torch.arange(rank, num_rows, rank + 1)
        tensor = torch.sparse_coo_tensor(
            rows[None], torch.ones(len(rows), 2), (num_rows, 2), check_invariants=True
        )
        dense = tensor.to_dense()
        dist.all_reduce(dense)
        dist.all_reduce(tensor)
        assert torch.equal(tensor.to_dense(), dense)

    run_ranks(3, body)


def test_shapes_match_by_the_order_of_elements():
    """As of dense arrays, whose shapes may differ, too."""

    def body(rank):
        tensor = torch.arange(6.0).reshape((2, 3) if rank else (6,)).to_sparse()
        dist.all_reduce(tensor)
        return tensor.to_dense().flatten().tolist()

    assert run_ranks(2, body) == [[0, 2, 4, 6, 8, 10]] * 2


def test_asynchronous_ones_keep_their_place_among_other_calls():
    def body(rank):
        tensors = [sparse([[rank]], [float(i)], (3,)) for i in range(4)]
        dense = torch.ones(3)
        works = []
        for tensor in tensors:
            works.append(dist.all_reduce(tensor, async_op=True))
            works.append(dist.all_reduce(dense, async_op=True))
        for work in reversed(works):
            assert work.wait()
            assert work.is_completed()
            assert work.is_success()
        assert works[2].result()[0] is tensors[1]
        assert works[2].wait()  # again
        return [t.to_dense().tolist() for t in tensors], dense.tolist()

    expected = [[i, i, 0] for i in range(4)]
    assert run_ranks(2, body) == [(expected, [16, 16, 16])] * 2


@pytest.mark.parametrize("async_op", [0, 1, [], [0]])
def test_async_op_is_any_truth_as_of_dense_ones(async_op):
    def body(rank):
        sum_of_both = sparse([[rank]], [1.0], (3,))
        works = [
            dist.all_reduce(tensor, async_op=async_op)
            for tensor in (sum_of_both, torch.ones(1))
        ]
        assert [work is None for work in works] == [not async_op] * 2
        for work in filter(None, works):
            work.wait()
        return sum_of_both.to_dense().tolist()

    assert run_ranks(2, body) == [[1, 1, 0]] * 2


def test_future_of_an_asynchronous_one():
    def body(rank):
        tensor = sparse([[rank]], [1.0], (3,))
        work = dist.all_reduce(tensor, async_op=True)
        future = work.get_future()
        assert isinstance(future, torch.futures.Future)
        (result,) = future.wait()
        assert result is tensor
        seen = future.then(lambda done: done.value()[0].to_dense().tolist())
        return seen.wait()

    assert run_ranks(2, body) == [[1, 1, 0]] * 2


def test_what_nobody_waits_for_is_done_when_the_work_says_so():
    def body(rank):
        tensor = sparse([[rank]], [1.0], (3,))
        work = dist.all_reduce(tensor, async_op=True)
        done = threading.Event()
        work.add_done_callback(done.set)
        assert done.wait(LIMIT)
        assert work.is_completed()
        return tensor.to_dense().tolist()

    assert run_ranks(2, body) == [[1, 1, 0]] * 2


def test_in_a_coalescing_block_and_by_the_methods_of_a_group():
    from allhands import _coalescing_manager

    def body(rank):
        tensors = [sparse([[rank]], [1.0], (3,)) for _ in range(3)]
        with _coalescing_manager():
            assert dist.all_reduce(tensors[0]) is None
            dist.all_reduce(tensors[1])
        dist.group.WORLD.allreduce([tensors[2]]).wait()
        return [tensor.to_dense().tolist() for tensor in tensors]

    assert run_ranks(2, body) == [[[1, 1, 0]] * 3] * 2


def test_in_a_group_of_some_ranks():
    def body(rank):
        pair = dist.new_group([0, 2])
        tensor = sparse([[rank]], [1.0], (3,))
        if rank != 1:
            dist.all_reduce(tensor, group=pair)
        return tensor.to_dense().tolist()

    assert run_ranks(3, body) == [[1, 0, 1], [0, 1, 0], [1, 0, 1]]


def test_hooks_see_the_tensor():
    def body(rank):
        tensor = sparse([[rank]], [1.0], (3,))
        seen = []
        dist.group.WORLD.register_pre_hook(0, lambda told: seen.append(told))
        dist.all_reduce(tensor)
        return seen[0].op, seen[0].input_tensors[0] is tensor, tensor._nnz()

    assert run_ranks(2, body) == [("all_reduce", True, 2)] * 2


def test_one_that_requires_grad_is_written_like_any():
    def body(rank):
        tensor = sparse([[rank]], [1.0], (3,)).requires_grad_()
        dist.all_reduce(tensor)
        assert tensor.requires_grad
        return tensor.detach().to_dense().tolist()

    assert run_ranks(2, body) == [[1, 1, 0]] * 2


def test_gradient_of_an_embedding():
    def body(rank):
        table = torch.nn.Embedding(5, 2, sparse=True)
        table(torch.tensor([rank, rank, 4])).sum().backward()
        dist.all_reduce(table.weight.grad, ReduceOp.AVG)
        return table.weight.grad.to_dense().tolist()

    assert run_ranks(2, body) == [[[1, 1], [1, 1], [0, 0], [0, 0], [1, 1]]] * 2


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: torch.ones(4), r"rank 1.*: all_reduce\(float32, count 4, SUM\)"),
        (
            lambda: torch.ones(4).double().to_sparse(),
            r"sparse float64, count 4 in rows of 1",
        ),
        (lambda: torch.ones(6).to_sparse(), r"sparse float32, count 6 in rows of 1"),
        (
            lambda: torch.ones(2, 2).to_sparse(1),
            r"sparse float32, count 4 in rows of 2",
        ),
    ],
    ids=["dense", "dtype", "shape", "sparse_dim"],
)
def test_ranks_that_pass_other_tensors_are_told_both_sides(make, text):
    def body(rank):
        dist.all_reduce(torch.ones(4).to_sparse() if rank == 0 else make())

    for rank, error in enumerate(outcomes(2, body)):
        assert error.ranks == [1 - rank]
        with pytest.raises(dist.CollectiveMismatchError, match=text):
            raise error
        with pytest.raises(
            dist.CollectiveMismatchError, match="sparse float32, count 4 in rows of 1"
        ):
            raise error


def test_group_works_on_after_a_mismatch():
    def body(rank):
        tensor = torch.ones(4 + rank).to_sparse()
        with pytest.raises(dist.CollectiveMismatchError):
            dist.all_reduce(tensor)
        assert tensor.to_dense().tolist() == [1] * (4 + rank)
        same = torch.ones(4).to_sparse()
        dist.all_reduce(same)
        return same.to_dense().tolist()

    assert run_ranks(2, body) == [[2, 2, 2, 2]] * 2


@pytest.mark.parametrize("async_op", [False, True])
def test_timeout_names_the_rank_that_did_not_come(async_op):
    is_told = threading.Event()

    def wait_in_vain(rank):
        tensor = torch.ones(4).to_sparse()

        def call():
            limit = timedelta(milliseconds=60)
            work = dist.all_reduce(tensor, async_op=async_op, timeout=limit)
            works.append(work)
            work.wait()

        works = []
        with pytest.raises(dist.CollectiveTimeoutError, match=r"rank 1") as raised:
            call()
        assert raised.value.ranks == [1]
        assert tensor.to_dense().tolist() == [1] * 4
        for work in works:
            assert isinstance(work.exception(), dist.CollectiveTimeoutError)
            assert not work.is_success()

    def body(rank):
        if rank == 1:  # stays in the group until rank 0 has given up
            assert is_told.wait(LIMIT)
            return
        try:
            wait_in_vain(rank)
        finally:
            is_told.set()

    run_ranks(2, body)


@pytest.mark.parametrize(
    "call",
    [
        lambda tensor: dist.reduce(tensor, 0),
        lambda tensor: dist.broadcast(tensor, 0),
        lambda tensor: dist.all_gather([tensor], torch.ones(3)),
        lambda tensor: dist.all_reduce_init(tensor),
        lambda tensor: dist.send(tensor, 0),
    ],
    ids=["reduce", "broadcast", "all_gather", "all_reduce_init", "send"],
)
def test_other_operations_refuse_sparse_tensors(call):
    def body(rank):
        with pytest.raises(RuntimeError, match=r"only all_reduce .* tensor\.to_dense"):
            call(torch.eye(3).to_sparse())

    run_ranks(1, body)


@pytest.mark.filterwarnings("ignore::UserWarning")  # CSR is in beta
def test_other_layouts_are_told_what_to_do():
    def body(rank):
        compressed = torch.eye(3).to_sparse_csr()
        with pytest.raises(
            RuntimeError, match=r"sparse_csr: .*tensor\.to_sparse_coo\(\)"
        ):
            dist.all_reduce(compressed)

    run_ranks(1, body)


def test_bad_operations_are_refused_at_once():
    def body(rank):
        with pytest.raises(RuntimeError, match="BAND with non-integral dtype"):
            dist.all_reduce(torch.ones(3).to_sparse(), ReduceOp.BAND)
        with pytest.raises(TypeError, match="float8"):
            dist.all_reduce(
                torch.sparse_coo_tensor(
                    torch.tensor([[1]]),
                    torch.ones(1).to(torch.float8_e4m3fn),
                    (3,),
                    is_coalesced=True,
                )
            )

    run_ranks(2, body)
