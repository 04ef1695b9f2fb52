"""The collectives on torch tensors, against what NumPy gives; ranks are threads."""

import pytest

import allhands as dist
from harness.ranks import run_ranks

torch = pytest.importorskip("torch")


def test_every_collective_takes_tensors():
    def body(rank):
        one = torch.full((2,), float(rank))
        parts = [torch.zeros(2), torch.zeros(2)]
        results = []
        dist.gather(one, parts if rank == 0 else None)
        results.append([part.tolist() for part in parts])
        dist.scatter(one, [torch.ones(2), torch.full((2,), 2.0)] if rank else None, 1)
        results.append(one.tolist())
        dist.reduce(one, 0)
        results.append(one.tolist())
        output = torch.zeros(1)
        dist.reduce_scatter(output, [torch.ones(1), torch.full((1,), 2.0)])
        results.append(output.tolist())
        dist.reduce_scatter_single(output, torch.arange(2.0))
        results.append(output.tolist())
        dist.all_to_all(parts, [torch.full((2,), 10.0 * rank + i) for i in (0, 1)])
        results.append([part.tolist() for part in parts])
        rows = torch.zeros(2, 2)
        dist.all_to_all_single(rows, torch.full((2, 2), float(rank)), [1, 1], [1, 1])
        results.append(rows.tolist())
        return results

    assert run_ranks(2, body) == [
        [
            [[0, 0], [1, 1]],
            [1, 1],
            [3, 3],
            [2],
            [0],
            [[0, 0], [10, 10]],
            [[0, 0], [1, 1]],
        ],
        [
            [[0, 0], [0, 0]],
            [2, 2],
            [2, 2],
            [4],
            [2],
            [[1, 1], [11, 11]],
            [[0, 0], [1, 1]],
        ],
    ]


def test_a_rank_that_only_gives_tensors_has_a_torch_future():
    def body(rank):
        parts = [torch.zeros(2), torch.zeros(2)] if rank == 0 else None
        works = [
            dist.gather(torch.ones(2), parts, dst=0, async_op=True),
            dist.gather(torch.ones(2), parts or [], dst=0, async_op=True),
            dist.gather_single(
                torch.ones(2), torch.zeros(4) if rank == 0 else None, async_op=True
            ),
            dist.reduce(torch.ones(2), 0, async_op=True),
            dist.isend(torch.ones(2), 1) if rank == 0 else dist.irecv(torch.ones(2), 0),
        ]
        futures = [work.get_future() for work in works]
        assert [type(each) for each in futures] == [type(futures[-1])] * len(works)
        for future in torch.futures.collect_all(futures).wait():
            future.value()

    run_ranks(2, body)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_coalesced_forms_return_a_torch_future():
    def body(rank):
        tensors = [torch.ones(2), torch.ones(3)]
        future = dist.all_reduce_coalesced(tensors, async_op=True)
        assert isinstance(future, torch.futures.Future)
        assert [tensor.tolist() for tensor in future.wait()] == [[2, 2], [2, 2, 2]]
        outputs = [[torch.zeros(2)], [torch.zeros(2)]]
        future = dist.all_gather_coalesced(outputs, tensors[:1], async_op=True)
        assert isinstance(future, torch.futures.Future)
        assert future.wait()[1][0].tolist() == [2, 2]

    run_ranks(2, body)
