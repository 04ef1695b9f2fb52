"""torch.compile of what communicates: with our backend as with Gloo."""

import pytest

from harness.torch_jobs import check_as_gloo

pytest.importorskip("torch")


def test_a_compiled_ddp_model_trains(tmp_path):
    check_as_gloo(
        tmp_path,
        2,
        """
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel as DDP

        def body(backend):
            given = []
            for options in ({}, {"gradient_as_bucket_view": True}):
                torch._dynamo.reset()
                torch.manual_seed(0)
                model = nn.Sequential(
                    nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
                module = torch.compile(DDP(model, **options), backend="aot_eager")
                optimizer = torch.optim.SGD(model.parameters(), 0.1)
                for step in range(3):
                    torch.manual_seed(10 * step + rank)
                    optimizer.zero_grad()
                    module(torch.randn(5, 8)).square().mean().backward()
                    optimizer.step()
                given.append([p.tolist() for p in model.state_dict().values()])
            return given
        """,
    )


def test_collectives_in_compiled_functions(tmp_path):
    check_as_gloo(
        tmp_path,
        2,
        """
        def in_one_graph(x):
            dist.all_reduce(x)
            whole = x.new_empty(2 * len(x))
            dist.all_gather_into_tensor(whole, x + dist.get_rank())
            part = torch.empty_like(x)
            dist.reduce_scatter_tensor(part, whole, group=dist.group.WORLD)
            return part * dist.get_world_size()

        def exchanged(x):
            peer = 1 - dist.get_rank()
            received = torch.zeros_like(x)
            messages = [
                dist.P2POp(dist.irecv, received, peer), dist.P2POp(dist.isend, x, peer)]
            for work in dist.batch_isend_irecv(messages):
                work.wait()
            return received

        def messages_in_one_graph(x):
            return exchanged(x) + x

        def in_parts(x):
            dist.broadcast(x, 1)
            work = dist.all_reduce(x, dist.ReduceOp.MAX, async_op=True)
            y = x.square().sum()
            work.wait()
            received = exchanged(x)
            dist.barrier()
            future = dist.all_reduce(x, async_op=True).get_future()
            return future.wait()[0] + received * y

        def body(backend):
            torch._dynamo.reset()
            given = []
            functions = [
                (in_one_graph, True), (messages_in_one_graph, True), (in_parts, False)]
            for function, fullgraph in functions:
                torch._dynamo.config.enable_p2p_compilation = (
                    function is messages_in_one_graph)
                compiled = torch.compile(
                    function, backend="aot_eager", fullgraph=fullgraph)
                for step in range(2):
                    x = torch.arange(4.0) * (rank + 1) + step
                    given.append(compiled(x).tolist())
            return given
        """,
    )
