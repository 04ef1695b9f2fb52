"""The operations of torch.distributed on our backend: what Gloo gives, we give."""

import pytest

from harness.torch_jobs import TorchJob, check_as_gloo

pytest.importorskip("torch")


@pytest.mark.parametrize("size", [1, 3])
def test_collectives(tmp_path, size):
    check_as_gloo(
        tmp_path,
        size,
        """
        def body(backend):
            ops = dist.ReduceOp
            given = []
            def tensor(count=6, dtype=torch.float32):
                return (torch.arange(count) * (rank + 1) % 7).to(dtype)
            def note(*tensors):
                given.append([t.tolist() for t in tensors])
            for dtype in (torch.float32, torch.float64, torch.int64, torch.uint8):
                for op in (ops.SUM, ops.PRODUCT, ops.MIN, ops.MAX):
                    x = tensor(dtype=dtype)
                    dist.all_reduce(x, op)
                    note(x)
            for op in (ops.BAND, ops.BOR, ops.BXOR):
                x = tensor(dtype=torch.int32)
                dist.all_reduce(x, op)
                note(x)
            x = tensor()
            dist.broadcast(x, size - 1)
            note(x)
            x = tensor()
            dist.reduce(x, 0)
            if rank == 0:
                note(x)
            parts = [torch.zeros(6) for _ in range(size)]
            dist.all_gather(parts, tensor())
            note(*parts)
            whole = torch.zeros(6 * size)
            dist.all_gather_into_tensor(whole, tensor())
            note(whole)
            parts = [torch.zeros(6) for _ in range(size)] if rank == 0 else None
            dist.gather(tensor(), parts)
            note(*(parts or []))
            x = torch.zeros(2)
            dist.scatter(x, [torch.full((2,), float(i)) for i in range(size)]
                         if rank == 0 else None)
            note(x)
            dist.reduce_scatter(x, [torch.full((2,), float(i)) for i in range(size)])
            note(x)
            dist.reduce_scatter_tensor(x, tensor(2 * size))
            note(x)
            x = torch.zeros(2 * size)
            dist.all_to_all_single(x, tensor(2 * size))
            note(x)
            parts = [torch.zeros(rank + i + 1) for i in range(size)]
            mine = [tensor(rank + i + 1) for i in range(size)]
            if backend == "allhands":
                dist.all_to_all(parts, mine)
            else:  # which Gloo lacks: made of messages
                works = [dist.irecv(parts[i], i) for i in range(size) if i != rank]
                for i in range(size):
                    if i != rank:
                        dist.send(mine[i], i)
                for work in works:
                    work.wait()
                parts[rank].copy_(mine[rank])
            note(*parts)
            splits = [i + 1 for i in range(size)]
            x = torch.zeros((rank + 1) * size)
            dist.all_to_all_single(
                x, tensor(sum(splits)), [rank + 1] * size, splits)
            note(x)
            objects = [None] * size
            dist.all_gather_object(objects, {"rank": rank})
            given.append(objects)
            objects = [rank, "x"]
            dist.broadcast_object_list(objects, 0)
            given.append(objects)
            dist.barrier()
            return given
        """,
    )


def test_messages(tmp_path):
    check_as_gloo(
        tmp_path,
        2,
        """
        def body(backend):
            peer = 1 - rank
            given = []
            x = torch.full((3,), float(rank))
            if rank == 0:
                dist.send(x, 1, tag=4)
                given.append(dist.recv(x))  # from any rank
            else:
                given.append(dist.recv(x, 0, tag=4))
                dist.send(x + 1, 0)
            given.append(x.tolist())
            y = torch.zeros(3)
            works = dist.batch_isend_irecv(
                [dist.P2POp(dist.irecv, y, peer), dist.P2POp(dist.isend, x, peer)])
            for work in works:
                work.wait()
            given.append(y.tolist())
            work = dist.irecv(y) if rank == 0 else dist.isend(y + 1, 0)
            work.wait()
            given.append([y.tolist(), work._source_rank() if rank == 0 else None])
            objects = [{"a": 1}] if rank == 0 else [None]
            if rank == 0:
                dist.send_object_list(objects, 1)
            else:
                dist.recv_object_list(objects, 0)
            return [*given, objects]
        """,
    )


def test_groups(tmp_path):
    check_as_gloo(
        tmp_path,
        3,
        """
        def body(backend):
            given = []
            pair = dist.new_group([0, 2])
            x = torch.ones(2)
            if rank != 1:
                dist.all_reduce(x, group=pair)
                given.append([dist.get_rank(pair), dist.get_world_size(pair)])
                dist.broadcast(x, 2, group=pair)
            given.append(x.tolist())
            alone, _ = dist.new_subgroups(1)
            dist.all_reduce(x, group=alone)
            given.append(x.tolist())
            given.append(dist.get_process_group_ranks(dist.group.WORLD))
            mesh = dist.device_mesh.init_device_mesh("cpu", (3,))
            dist.all_reduce(x, group=mesh.get_group())
            given.append(x.tolist())
            dist.destroy_process_group(pair)
            dist.all_reduce(x)
            return [*given, x.tolist()]
        """,
    )


def test_handles_and_futures(tmp_path):
    check_as_gloo(
        tmp_path,
        2,
        """
        def body(backend):
            given = []
            x = torch.full((4,), rank + 1.0)
            work = dist.all_reduce(x, async_op=True)
            work.wait()
            given.append([work.is_completed(), work.is_success(), x.tolist()])
            future = dist.all_reduce(x, async_op=True).get_future()
            doubled = future.then(lambda done: [2 * t for t in done.value()])
            given.append([t.tolist() for t in doubled.wait()])
            several = [torch.full((100_000,), i + 1.0) for i in range(4)]
            works = [dist.all_reduce(large, async_op=True) for large in several]
            for work in reversed(works):
                work.wait()
            given.append([large.sum().item() for large in several])
            with dist._coalescing_manager():
                dist.all_reduce(x)
                dist.all_reduce(several[0])
            given.append([x.tolist(), several[0].sum().item()])
            return given
        """,
    )


def test_functional_collectives(tmp_path):
    check_as_gloo(
        tmp_path,
        2,
        """
        def body(backend):
            import torch.distributed._functional_collectives as functional
            world = dist.group.WORLD
            x = torch.arange(4.0) + rank
            given = [
                functional.all_reduce(x, "sum", world),
                functional.all_gather_tensor(x, 0, world),
                functional.reduce_scatter_tensor(x, "sum", 0, world),
                functional.broadcast(x, 1, world),
                functional.all_to_all_single(x, None, None, world),
                *functional.all_reduce_coalesced([x, 2 * x], "sum", world),
                *functional.all_gather_into_tensor_coalesced([x, 2 * x], world),
            ]
            plain, peer = torch.ops._c10d_functional, 1 - rank
            whole = torch.zeros(8)
            for called in (world.group_name, world):
                plain.wait_tensor(plain.all_gather_into_tensor_out(
                    x, 2, called, out=whole.zero_()))
                given.append(whole.clone())
            messages = [["isend", "irecv"], [peer, peer], [3, 3], [x, torch.zeros(4)]]
            sent, came = functional.batch_p2p_ops_inplace(*messages, world)
            given += [sent, came]
            for wrong in (["send", "isend"], ["isend"]):
                messages[0] = wrong
                try:
                    plain.batch_p2p_ops(*messages, world.group_name)
                except RuntimeError:
                    given.append(torch.ones(1))
            def step(x):
                return functional.all_reduce(x * 2, "sum", world) + 1
            compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
            given.append(compiled(x))
            x.requires_grad_()
            import torch.distributed.nn.functional as with_gradient
            with_gradient.all_reduce(x * x).sum().backward()
            return [t.tolist() for t in [*given, x.grad]]
        """,
    )


def test_a_block_of_one_thread_collects_its_own_calls_only(tmp_path):
    source = """
    import threading
    init("allhands")
    group = dist.group.WORLD
    x, y = torch.ones(2), torch.ones(2)
    group._start_coalescing(x.device)
    dist.all_reduce(x)
    other = threading.Thread(target=lambda: dist.all_reduce(y))
    other.start()
    other.join()
    seen = y.tolist()
    group._end_coalescing(x.device).wait()
    give([seen, x.tolist()])
    """
    with TorchJob(tmp_path, 2, source) as job:
        assert job.join() == [[[2, 2], [2, 2]]] * 2


def test_a_program_may_end_without_destroying_its_groups(tmp_path):
    source = """
    init("allhands")
    x = torch.ones(2)
    dist.all_reduce(x)
    pair = dist.new_group([0, 1])
    dist.all_reduce(x, group=pair, async_op=True)
    give(x.tolist())
    """
    with TorchJob(tmp_path, 2, source) as job:
        outputs = [process.communicate()[1] for process in job.ranks]
        assert [process.returncode for process in job.ranks] == [0, 0]
    assert outputs == ["", ""]


def test_a_world_is_made_again(tmp_path):
    source = """
    given = []
    for number in range(3):
        init("allhands", number)
        x = torch.ones(2)
        dist.all_reduce(x)
        given.append(x.tolist())
        dist.destroy_process_group()
    give(given)
    """
    with TorchJob(tmp_path, 2, source) as job:
        assert job.join() == [[[2, 2]] * 3] * 2


def test_collectives_of_8_bit_floats(tmp_path):
    source = """
    import torch.distributed._functional_collectives as functional

    init("allhands")
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        mine = torch.tensor([rank + 1.0, 2.0]).to(dtype)
        both = torch.zeros(4).to(dtype)
        dist.all_gather_into_tensor(both, mine)
        assert both.float().tolist() == [1, 2, 2, 2]
        again = functional.all_gather_tensor(mine, 0, dist.group.WORLD)
        assert again.float().tolist() == [1, 2, 2, 2]
        shares = torch.zeros(2).to(dtype)
        dist.all_to_all_single(shares, mine)
        assert shares.float().tolist() == ([2, 2] if rank else [1, 2])
        dist.broadcast(mine, 1)
        assert mine.float().tolist() == [2, 2]
        try:
            dist.all_reduce(mine)
        except TypeError as error:
            assert "can be moved but not reduced" in str(error)
        else:
            raise AssertionError("reduced")
    give("done")
    """
    with TorchJob(tmp_path, 2, source) as job:
        assert job.join() == ["done"] * 2


def test_messages_of_8_bit_floats(tmp_path):
    """Gloo sends any dtype, and so a program may."""
    check_as_gloo(
        tmp_path,
        2,
        """
        def body(backend):
            given, numbers = [], torch.tensor([[1.0, -2.0], [0.5, 3.0]])
            for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
                sent, came = numbers.to(dtype), torch.zeros(2, 2).to(dtype)
                if rank == 0:
                    dist.send(sent, 1)
                    dist.isend(sent, 1, tag=3).wait()
                else:
                    dist.recv(came, 0)
                    given.append(came.float().tolist())
                    dist.recv(came.zero_(), tag=3)  # from any rank
                    given.append(came.float().tolist())
                works = dist.batch_isend_irecv(
                    [dist.P2POp(dist.irecv, came, 1 - rank),
                     dist.P2POp(dist.isend, (sent.float() + rank).to(dtype), 1 - rank)])
                for work in works:
                    work.wait()
                given.append([str(came.dtype), came.float().tolist()])
            return given
        """,
    )
