"""Operations of NCCL in CUDA graphs; not a test by its name.

`test_gpus` runs it in a job of its own: in the mode "global", CUDA ends a capture if
any thread of the process calls what is not allowed, and NCCL has threads that end the
groups of earlier tests.
"""

import numpy as np
import pytest
import torch

import allhands as dist
from harness.ranks import run_ranks

WORLD = dist.get_world_size()
sizes = pytest.mark.parametrize("size", [size for size in (1, 2, 3) if size <= WORLD])


@sizes
@pytest.mark.parametrize("mode", ["global", "thread_local"])
def test_operations_in_a_graph(size, mode):
    def body(rank):
        array, whole = (
            torch.zeros(1000, device="cuda"),
            torch.zeros(size, device="cuda"),
        )
        message = torch.zeros(3, device="cuda")
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()

        def step():
            dist.all_reduce(array)
            array.add_(1.0)
            work = dist.all_gather_single(whole, array[:1] * (rank + 1), async_op=True)
            work.wait()
            whole.mul_(2.0)
            ops = [dist.P2POp(dist.isend, array[:3], (rank + 1) % size)]
            ops += [dist.P2POp(dist.irecv, message, (rank - 1) % size)]
            for each in dist.batch_isend_irecv(ops):
                each.wait()
            message.add_(0.5)

        with torch.cuda.graph(graph, stream=stream, capture_error_mode=mode):
            array.add_(1.0)
            with pytest.raises(NotImplementedError, match="run one before the capture"):
                dist.all_reduce(array)
        with torch.cuda.stream(stream):
            step()  # so that NCCL has connected what it needs
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode=mode):
            step()
        array.fill_(1.0)
        for _ in range(50):
            graph.replay()
            dist.all_reduce(torch.ones(10, device="cuda"))  # beside the graph
        torch.cuda.synchronize()
        expected = 1.0
        for _ in range(50):
            expected = np.float32(expected * size + 1)
        assert array[0].item() == array[-1].item() == expected
        assert whole.tolist() == [2 * expected * (peer + 1) for peer in range(size)]
        assert message.tolist() == [expected + np.float32(0.5)] * 3
        del graph  # before NCCL's communicator goes

    run_ranks(size, body)
