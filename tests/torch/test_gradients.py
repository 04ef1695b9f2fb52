"""Collectives through which gradients flow, SyncBatchNorm, DTensors: as on Gloo."""

import pytest

from harness.torch_jobs import check_as_gloo

pytest.importorskip("torch")


@pytest.mark.parametrize("size", [2, 4])
def test_collectives_with_gradients_and_samplers(tmp_path, size):
    check_as_gloo(
        tmp_path,
        size,
        """
        from torch import nn
        from torch.distributed.nn import functional as F
        from torch.utils.data import DistributedSampler, TensorDataset

        def body(backend):
            given = []
            def step(call, *inputs):
                torch.manual_seed(rank)
                inputs = [x.clone().requires_grad_() for x in inputs]
                outputs = call(*inputs)
                if isinstance(outputs, torch.Tensor):
                    outputs = [outputs]
                weights = [torch.arange(x.numel()).reshape(x.shape) + rank + 1.0
                           for x in outputs]
                sum((x * x * w).sum() for x, w in zip(outputs, weights)).backward()
                given.append([x.tolist() for x in outputs])
                given.append([None if x.grad is None else x.grad.tolist()
                              for x in inputs])

            x = torch.arange(4.0) + rank
            several = [x + i for i in range(size)]
            sum_ = dist.ReduceOp.SUM
            step(lambda x: F.broadcast(x, 1), x)
            step(lambda x: F.gather(x, 1), x)
            step(lambda *several: F.scatter(several, 1), *several)
            step(lambda x: F.reduce(x, 1, sum_) * (rank == 1), x)
            step(lambda x: F.all_gather(x), x)
            step(lambda x: F.all_reduce(x, sum_), x)
            step(lambda *several: F.all_to_all(
                [torch.zeros(4) for _ in range(size)], list(several)), *several)
            step(lambda x: F.all_to_all_single(
                torch.zeros(size), x), torch.arange(float(size)))
            if backend == "allhands":
                # Gloo has not all of these; what they must give is known.
                y = x.clone().requires_grad_()
                total = F.reduce_scatter(torch.zeros(4), [y * (i + 1)
                                         for i in range(size)], sum_)
                total.sum().backward()
                ranks = sum(range(size))
                assert total.tolist() == [
                    (rank + 1) * (size * i + ranks) for i in range(4)]
                assert y.grad.tolist() == [sum(range(size + 1))] * 4

            batch_norm = nn.SyncBatchNorm(3)
            try:
                batch_norm(torch.ones(2, 3))
            except ValueError as error:
                given.append(str(error))
            batch_norm.eval()
            given.append(batch_norm(torch.ones(2, 3)).tolist())
            for shuffle in (False, True):
                sampler = DistributedSampler(
                    TensorDataset(torch.arange(11)), shuffle=shuffle)
                sampler.set_epoch(3)
                given.append(list(sampler))
            return given
        """,
        tolerance=0 if size == 2 else 1e-4,  # of values up to some hundreds
    )


@pytest.mark.parametrize("size", [2, 4])
def test_dtensors_between_all_placements(tmp_path, size):
    check_as_gloo(
        tmp_path,
        size,
        """
        import itertools
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import (
            DTensor, Partial, Replicate, Shard, distribute_tensor)

        def body(backend):
            given = []
            mesh = init_device_mesh("cpu", (size,))
            meshes = [mesh]
            if size == 4:
                meshes.append(init_device_mesh("cpu", (2, 2), mesh_dim_names="ab"))
            local = torch.arange(30.0).reshape(6, 5) + rank
            ends = [Replicate(), Shard(0), Shard(1), Partial()]
            for mesh in meshes:
                every = list(itertools.product(ends, repeat=mesh.ndim))
                for before in every:
                    start = (
                        DTensor.from_local(local, mesh, before)
                        if any(one.is_partial() for one in before)
                        else distribute_tensor(local, mesh, before))
                    for after in every:
                        try:
                            moved = start.redistribute(mesh, after).to_local()
                            given.append(moved.tolist())
                        except RuntimeError as error:
                            given.append(str(error))
            return given
        """,
        tolerance=0 if size == 2 else 1e-4,
    )
