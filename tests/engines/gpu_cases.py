"""What holds for arrays on GPUs, whichever backend serves them; not a test by its name.

`test_gpus` runs it in jobs whose ranks share a GPU, with the plug-in
`harness.gpu_ranks`.
"""

from datetime import timedelta

import numpy as np
import pytest
import torch

import allhands as dist
from harness import ranks
from harness.ranks import run_ranks

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
WORLD = dist.get_world_size()
IS_NCCL = ranks.BACKEND == "nccl"
SIZES = [size for size in (1, 2, 3) if size <= WORLD]
sizes = pytest.mark.parametrize("size", SIZES)
DTYPES = ["float32", "float64", "float16", "int32", "int64", "uint8", "complex64"]
several = pytest.mark.skipif(WORLD < 2, reason="the ranks here are one")


def of_torch(values, dtype="float32"):
    return torch.from_numpy(np.asarray(values).astype(dtype)).cuda()


def of_cupy(values, dtype="float32"):
    return cupy.asarray(np.asarray(values).astype(dtype))


MAKERS = {"torch": of_torch, "cupy": of_cupy}
libraries = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def host(array):
    return array.cpu().numpy() if isinstance(array, torch.Tensor) else array.get()


def numbers(rank, count=7):
    return np.arange(count) % 5 + rank + 1


@sizes
@libraries
@pytest.mark.parametrize("dtype", DTYPES)
def test_reductions(size, make, dtype):
    everyone = [numbers(rank) for rank in range(size)]
    ops = {"SUM": sum(everyone), "PRODUCT": np.prod(everyone, axis=0)}
    ops |= {"MIN": np.min(everyone, axis=0), "MAX": np.max(everyone, axis=0)}
    if dtype == "complex64":
        del ops["MIN"], ops["MAX"]
        if IS_NCCL:
            del ops["PRODUCT"]

    def body(rank):
        for name, expected in ops.items():
            op = getattr(dist.ReduceOp, name)
            array = make(numbers(rank), dtype)
            dist.all_reduce(array, op)
            assert host(array).tolist() == expected.astype(dtype).tolist()
            array = make(numbers(rank), dtype)
            dist.reduce(array, size - 1, op)
            left = expected if rank == size - 1 else numbers(rank)
            assert host(array).tolist() == left.astype(dtype).tolist()
            rows = [make(numbers(rank) + peer, dtype) for peer in range(size)]
            output = make(np.zeros(7), dtype)
            dist.reduce_scatter(output, rows, op)
            assert host(output)[0] == _reduced(name, size, rank).astype(dtype)

    run_ranks(size, body)


def _reduced(name, size, rank):
    first = [numbers(peer)[0] + rank for peer in range(size)]
    names = {"SUM": np.sum, "PRODUCT": np.prod, "MIN": np.min, "MAX": np.max}
    return names[name](first)


@sizes
@libraries
def test_averages_and_factors(size, make):
    def body(rank):
        for dtype in ("float32", "float64", "float16"):
            array = make(numbers(rank), dtype)
            dist.all_reduce(array, dist.ReduceOp.AVG)
            mean = np.mean([numbers(peer) for peer in range(size)], axis=0)
            assert np.allclose(host(array), mean, rtol=1e-3)
            array = make(numbers(rank), dtype)
            dist.all_reduce(array, dist.ReduceOp.PREMUL_SUM(0.5))
            assert np.allclose(host(array), mean * size / 2, rtol=1e-3)

    run_ranks(size, body)


@sizes
def test_bfloat16_and_bool(size):
    def body(rank):
        array = torch.full((5,), rank + 1.0, dtype=torch.bfloat16, device="cuda")
        dist.all_reduce(array)
        assert array.tolist() == [size * (size + 1) / 2] * 5
        array.fill_(3.0)
        dist.all_reduce(array, dist.ReduceOp.PREMUL_SUM(0.5))
        assert array.tolist() == [1.5 * size] * 5
        flags = torch.tensor([rank == 0, False, True], device="cuda")
        dist.all_reduce(flags, dist.ReduceOp.SUM)
        assert flags.tolist() == [True, False, True]
        flags = torch.tensor([rank == 0, False, True], device="cuda")
        dist.all_reduce(flags, dist.ReduceOp.BAND)
        assert flags.tolist() == [size == 1, False, True]

    run_ranks(size, body)


@sizes
@libraries
def test_moves(size, make):
    def body(rank):
        root = size - 1
        array = make(numbers(rank))
        dist.broadcast(array, root)
        assert host(array).tolist() == numbers(root).tolist()
        parts = [make(np.zeros(7)) for _ in range(size)]
        dist.all_gather(parts, make(numbers(rank)))
        everyone = [numbers(peer).tolist() for peer in range(size)]
        assert [host(part).tolist() for part in parts] == everyone
        whole = make(np.zeros(7 * size))
        dist.all_gather_single(whole, make(numbers(rank)))
        assert host(whole).reshape(size, 7).tolist() == everyone
        parts = [make(np.zeros(7)) for _ in range(size)] if rank == root else None
        dist.gather(make(numbers(rank)), parts, root)
        if rank == root:
            assert [host(part).tolist() for part in parts] == everyone
        output = make(np.zeros(7))
        given = [make(row) for row in everyone] if rank == root else None
        dist.scatter(output, given, root)
        assert host(output).tolist() == everyone[rank]
        outputs = [make(np.zeros(2)) for _ in range(size)]
        inputs = [make([10 * rank + peer] * 2) for peer in range(size)]
        dist.all_to_all(outputs, inputs)
        assert [host(o)[0] for o in outputs] == [10 * p + rank for p in range(size)]
        dist.barrier()

    run_ranks(size, body)


@sizes
@libraries
def test_unequal_parts(size, make):
    def body(rank):
        counts = [peer + 1 for peer in range(size)]
        parts = [make(np.zeros(count)) for count in counts]
        dist.all_gather(parts, make(np.full(rank + 1, rank)))
        expected = [[float(p)] * (p + 1) for p in range(size)]
        assert [host(part).tolist() for part in parts] == expected
        sent = make(np.full(sum(counts), rank))
        received = make(np.zeros((rank + 1) * size))
        dist.all_to_all_single(received, sent, [rank + 1] * size, counts)
        assert host(received).tolist() == np.repeat(range(size), rank + 1).tolist()
        output = make(np.zeros(rank + 1))
        dist.reduce_scatter(output, [make(np.full(c, rank + 1)) for c in counts])
        assert host(output).tolist() == [size * (size + 1) / 2] * (rank + 1)

    run_ranks(size, body)


@sizes
@libraries
def test_strided_arrays_and_shared_memory(size, make):
    def body(rank):
        board = make(np.zeros((4, 6)))
        column = board[:, 2]
        column[...] = rank + 1.0
        dist.all_reduce(column)
        expected = np.zeros((4, 6))
        expected[:, 2] = size * (size + 1) / 2
        assert host(board).tolist() == expected.tolist()
        whole = make(np.zeros(3 * size))
        mine = whole[3 * rank : 3 * rank + 3]
        mine[...] = rank
        dist.all_gather_single(whole, mine)  # in place
        assert host(whole).tolist() == np.repeat(range(size), 3).tolist()
        whole[...] = rank
        dist.all_gather_single(whole, whole[:3])  # overlapping otherwise
        assert host(whole).tolist() == np.repeat(range(size), 3).tolist()
        whole = make(np.arange(3 * size) + rank)
        dist.reduce_scatter_single(whole[:3], whole)
        total = sum(np.arange(3 * size) + peer for peer in range(size))
        assert host(whole[:3]).tolist() == total[3 * rank : 3 * rank + 3].tolist()

    run_ranks(size, body)


@sizes
@libraries
def test_asynchronous_operations(size, make):
    def body(rank):
        arrays = [make(np.full(1000, rank + i)) for i in range(20)]
        works = [dist.all_reduce(array, async_op=True) for array in arrays]
        for work in works:
            work.wait()
        total = size * (size - 1) / 2
        for i, array in enumerate(arrays):
            assert host(array).tolist() == [total + size * i] * 1000
        future = dist.all_reduce(arrays[0], async_op=True).get_future()
        result = future.wait()
        assert host(result[0])[0] == size * total

    run_ranks(size, body)


@sizes
def test_order_with_work_of_the_program(size):
    def body(rank):
        array = torch.zeros(1 << 20, device="cuda")
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for i in range(20):
                array.fill_(float(rank + i))  # seen by the operation
                dist.all_reduce(array)
                array.add_(1.0)  # sees its result
                work = dist.all_reduce(array, async_op=True)
                work.wait()
                array.add_(1.0)
        stream.synchronize()
        once = size * (size - 1) / 2 + 19 * size + 1
        assert array[0].item() == array[-1].item() == size * once + 1

    run_ranks(size, body)


@several
@libraries
def test_messages(make):
    def body(rank):
        if rank == 0:
            dist.send(make(numbers(0)), 1)
            echo = make(np.zeros(7))
            dist.recv(echo, 1)
            assert host(echo).tolist() == (2 * numbers(0)).tolist()
        else:
            array = make(np.zeros(7))
            assert dist.recv(array, 0) == 0
            dist.send(array * 2, 0)
        there = make(np.zeros((2, 3)))[:, 1]
        work = dist.irecv(there, 1 - rank)
        dist.isend(make([rank, rank]), 1 - rank).wait()
        work.wait()
        assert host(there).tolist() == [1 - rank] * 2

    if IS_NCCL:
        pytest.skip("messages that cross need batch_isend_irecv with NCCL")
    run_ranks(2, body)


@several
@libraries
def test_messages_one_way(make):
    def body(rank):
        for _ in range(5):
            if rank == 0:
                dist.send(make(numbers(0)), 1)
            else:
                array = make(np.zeros(7))
                assert dist.recv(array, 0) == 0
                assert host(array).tolist() == numbers(0).tolist()

    run_ranks(2, body)


@sizes
@libraries
def test_batches_of_messages_in_any_order(size, make):
    def body(rank):
        for _ in range(3):
            received = [make(np.zeros(50)) for _ in range(size)]
            ops = [
                dist.P2POp(dist.isend, make(np.full(50, rank)), peer)
                for peer in range(size)
            ]
            ops += [
                dist.P2POp(dist.irecv, received[peer], peer)
                for peer in reversed(range(size))
            ]
            for work in dist.batch_isend_irecv(ops):
                work.wait()
            assert [host(r)[0] for r in received] == list(range(size))

    run_ranks(size, body)


@sizes
@libraries
def test_coalesced_operations(size, make):
    def body(rank):
        arrays = [make(np.full(n, rank + 1)) for n in (1, 5, 3)]
        with pytest.warns(FutureWarning):
            dist.all_reduce_coalesced(arrays)
        total = size * (size + 1) / 2
        assert [host(a).tolist() for a in arrays] == [[total] * n for n in (1, 5, 3)]
        with dist._coalescing_manager(async_ops=True) as manager:
            for array in arrays:
                dist.all_reduce(array)
        manager.wait()
        assert [host(a)[0] for a in arrays] == [total * size] * 3

    run_ranks(size, body)


@sizes
def test_objects(size):
    def body(rank):
        found = [None] * size
        dist.all_gather_object(found, {"rank": rank, "text": "x" * 1000 * rank})
        assert [one["rank"] for one in found] == list(range(size))
        listed = [{"epoch": 3}] if rank == 0 else [None]
        dist.broadcast_object_list(listed, 0)
        assert listed == [{"epoch": 3}]

    run_ranks(size, body)


@sizes
def test_subgroups(size):
    def body(rank):
        group = dist.new_group(list(range(size - 1)) or [0])
        array = of_torch([rank + 1.0])
        if rank < max(size - 1, 1):
            dist.all_reduce(array, group=group)
            n = max(size - 1, 1)
            assert array.item() == n * (n + 1) / 2
        half = dist.split_group(dist.group.WORLD, [[r] for r in range(size)])
        dist.all_reduce(array, group=half)
        dist.barrier()

    run_ranks(size, body)


def test_wrong_arguments_are_refused_before_anything_is_sent():
    def body(rank):
        with pytest.raises(ValueError, match=r"list|size|elements"):
            dist.all_gather([of_torch([1.0, 2.0])], of_torch([1.0]))
        with pytest.raises(ValueError, match="overlap"):
            dist.all_reduce(torch.zeros(1, device="cuda").expand(3))
        with pytest.raises(TypeError, match="float8"):
            dist.all_reduce(torch.zeros(3, device="cuda").to(torch.float8_e5m2))
        array = of_torch([rank + 1.0])
        dist.all_reduce(array)
        assert array.item() == 1

    run_ranks(1, body)


@several
def test_a_rank_that_does_not_come_is_named():
    def body(rank):
        group = dist.new_group([0, 1], timeout=timedelta(seconds=2))
        array = of_torch([1.0])
        dist.all_reduce(array, group=group)
        torch.cuda.synchronize()
        if rank == 0:
            work = dist.all_reduce(array, group=group, async_op=True)
            with pytest.raises(dist.CollectiveTimeoutError) as raised:
                work.wait(timedelta(seconds=30))
            assert raised.value.ranks == [1]
            with pytest.raises(dist.DistBackendError):
                dist.all_reduce(array, group=group)
        dist.barrier()

    run_ranks(2, body)
