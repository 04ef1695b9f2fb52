"""Lists of several tensors of one rank: what Gloo gives, our backend gives."""

import pytest

from harness.torch_jobs import check_as_gloo

pytest.importorskip("torch")


def test_methods_of_a_group_take_several_tensors(tmp_path):
    check_as_gloo(
        tmp_path,
        2,
        """
        def body(backend):
            group, given = dist.group.WORLD, []
            def tensors(*values):
                return [torch.full((2,), float(value)) for value in values]
            def note(*tensors):
                given.append([t.tolist() for t in tensors])
            for name in ("SUM", "PRODUCT", "MIN", "MAX"):
                mine = tensors(rank + 1, rank + 3)
                options = dist.AllreduceOptions()
                options.reduceOp = getattr(dist.ReduceOp, name)
                work = group.allreduce(mine, options)
                work.wait()
                note(*mine, *work.result())
            for root in range(2):
                for source in range(2):
                    mine = tensors(10 * rank, 10 * rank + 1)
                    options = dist.BroadcastOptions()
                    options.rootRank, options.rootTensor = root, source
                    group.broadcast(mine, options).wait()
                    note(*mine)
            outputs = [tensors(0, 0, 0, 0) for _ in range(2)]
            group.allgather(outputs, tensors(10 * rank, 10 * rank + 1)).wait()
            note(*outputs[0], *outputs[1])
            for call in (
                lambda: group.allreduce([torch.ones(1), torch.ones(2)]),
                lambda: group.reduce([torch.ones(1), torch.ones(1)]),
                lambda: group.allgather([], [torch.ones(1)] * 2),
                lambda: group.allreduce([]),
            ):
                try:
                    call()
                except RuntimeError:
                    given.append("RuntimeError")
            return given
        """,
    )
