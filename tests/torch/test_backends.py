"""Groups whose backends torch asks for, splits, or combines with others."""

import os
import subprocess
import sys
from datetime import timedelta
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from allhands.groups.torch_collectives import TorchCollectives
from harness.torch_jobs import TorchJob

torch = pytest.importorskip("torch")
creation = pytest.importorskip("allhands.torch.creation")
backend = pytest.importorskip("allhands.torch.backend")

old = pytest.mark.skipif(backend.CAN_BE_MADE, reason="this torch combines backends")
new = pytest.mark.skipif(
    not backend.CAN_BE_MADE, reason="this torch cannot combine backends"
)
newest = pytest.mark.skipif(
    torch.__version__ < "2.15", reason="this torch splits only groups with a GPU"
)


def run(program):
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )


def test_a_group_knows_its_devices_and_its_store(tmp_path):
    source = """
    init("allhands")
    pair = dist.new_group([0, 1], group_desc="two")
    store = pair.get_group_store()
    if rank == 0:
        store.set("key", "value")
    given = [sorted(map(str, pair._device_types)), store.get("key").decode()]
    give([*given, pair.group_desc, pair._get_backend_name()])
    dist.barrier()
    """
    with TorchJob(tmp_path, 2, source) as job:
        assert job.join() == [[["cpu", "cuda"], "value", "two", "allhands"]] * 2


def test_a_group_is_split(tmp_path):
    source = """
    init("allhands")
    world = dist.group.WORLD
    given = []
    for _ in range(2):  # the second ones are others
        odd = world.split_group([3, 1], timeout=timedelta(seconds=30))
        even = world.split_group([0, 2], group_desc="even")
        assert (odd is None) == (rank % 2 == 0) == (even is not None)
        part = odd or even
        x = torch.tensor([float(rank)])
        part.broadcast(x, 0).wait()
        part.barrier().wait()
        given.append([part.rank(), part.size(), part.group_desc, x.item()])
        part.shutdown()
    give(given)
    """
    with TorchJob(tmp_path, 4, source) as job:
        odd, even = "default_pg:split", "even"
        assert job.join() == [
            [[0, 2, even, 0]] * 2,
            [[1, 2, odd, 3]] * 2,
            [[1, 2, even, 0]] * 2,
            [[0, 2, odd, 3]] * 2,
        ]


@old
def test_the_group_is_its_own_backend(tmp_path):
    source = """
    from allhands.torch.gloo import GlooProcessGroup
    dist.distributed_c10d.ProcessGroupGloo = GlooProcessGroup  # as --replace-gloo does
    init("gloo")
    world = dist.group.WORLD
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=7), world)
    given = [world.timeout.total_seconds()]
    given.append(world._get_backend(torch.device("cpu")) is world)
    given.append(world.options._timeout.total_seconds())
    try:
        world._get_backend(torch.device("xpu"))
    except RuntimeError as error:
        given.append("no backend for tensors of device 'xpu'" in str(error))
    give(given)
    """
    with TorchJob(tmp_path, 1, source) as job:
        assert job.join() == [[7, True, 7, True]]


def test_the_timeout_is_set_by_torchs_function(tmp_path):
    source = """
    init("allhands")
    pair, given = dist.new_group([0, 1]), []
    for group, seconds in (None, 7), (pair, 8):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", UserWarning)
            dist.distributed_c10d._set_pg_timeout(timedelta(seconds=seconds), group)
        given.append([str(warning.message) for warning in said])
    given += [each.timeout.total_seconds() for each in (dist.group.WORLD, pair)]
    other = dist.new_group([0, 1], backend="gloo")
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=9), other)
    give([*given, other._get_backend(torch.device("cpu")).options._timeout.seconds])
    """
    with TorchJob(tmp_path, 2, source) as job:
        assert job.join() == [[[], [], 7, 8, 9]] * 2


@old
@pytest.mark.parametrize(
    "lack", ["del torch.library.get_kernel", "backendless._OPERATIONS = 'other'"]
)
def test_a_torch_that_lacks_some_functions_is_served(lack):
    """torch 2.11, with which tensors of a GPU were tried, is one."""
    run(
        f"""if True:
        import torch
        from allhands.torch import AllhandsProcessGroup, backendless
        {lack}
        backendless.serve_without_backend(AllhandsProcessGroup, "cpu")
        """
    )


def test_a_block_that_an_exception_left_is_begun_again(tmp_path):
    source = """
    from allhands.torch.work import ENDED
    init("allhands")
    world, cpu, x = dist.group.WORLD, torch.device("cpu"), torch.ones(1)
    for _ in range(2):  # the first is left
        world._start_coalescing(cpu)
        world.allreduce([x])
    world._end_coalescing(cpu).wait()
    opts = dist.BarrierOptions()
    opts.asyncOp = False
    give(world.barrier(opts) is ENDED)  # so it is no part of a block
    """
    with TorchJob(tmp_path, 1, source) as job:
        assert job.join() == [True]


def test_parts_that_are_made_at_once_do_not_meet(tmp_path):
    source = """
    init("allhands")
    world = dist.group.WORLD
    given = []
    for _ in range(2):
        part = world.split_group([0, 1] if rank < 2 else [2, 3])
        x = torch.tensor([float(rank)])
        part.allreduce([x]).wait()
        given.append([part.size(), x.item()])
    for ranks in ([], [0, 0], [rank, 4]):
        try:
            world.split_group(ranks)
        except ValueError as error:
            given.append(str(error).endswith(f"each once, got {ranks}"))
    give(given)
    """
    with TorchJob(tmp_path, 4, source) as job:
        said = [True] * 3
        assert job.join() == [
            *[[[2, 1.0], [2, 1.0], *said]] * 2,
            *[[[2, 5.0], [2, 5.0], *said]] * 2,
        ]


def test_groups_of_two_worlds_are_merged(tmp_path):
    source = """
    world, size = rank % 2, 2
    rank //= 2
    init("allhands", world)  # ranks 0 and 2 in one, 1 and 3 in the other
    store = dist.FileStore(f"{folder}/merge", -1)
    given = []
    try:
        dist.group.WORLD.merge_remote_group(store, 3)
    except ValueError as error:
        given.append(str(error))
    for names in {}, {"group_name": "both", "group_desc": "of two worlds"}:
        merged = dist.group.WORLD.merge_remote_group(store, 4, **names)
        parts = [torch.zeros(2) for _ in range(4)]
        own = torch.tensor([float(world), float(rank)])
        merged.allgather([parts], [own]).wait()
        called = [merged.group_name.partition(":")[0], merged.group_desc]
        given.append([merged.rank(), [part.tolist() for part in parts], called])
        merged.barrier().wait()
        merged.shutdown()
    rank = 2 * rank + world
    give(given)
    """
    with TorchJob(tmp_path, 4, source) as job:
        for rank, given in enumerate(job.join()):
            assert "more than 3 ranks together" in given[0]
            names = ["merged", "merged"], ["both", "of two worlds"]
            for (merged, members, called), expected in zip(
                given[1:], names, strict=True
            ):
                assert called == expected
                assert members[merged] == [rank % 2, rank // 2]
                assert members in (
                    [[0, 0], [0, 1], [1, 0], [1, 1]],
                    [[1, 0], [1, 1], [0, 0], [0, 1]],
                )


def test_a_backend_passes_on_the_operations_that_torch_has_of_one():
    asked = {*dir(torch._C._distributed_c10d.Backend)} & vars(TorchCollectives).keys()
    asked = {name for name in asked if not name.startswith("_")}
    # torch makes the first two of others, and asks for the last where it combines none.
    for name in asked - {"gather_single", "gather_into_tensor", "alltoall_base"}:
        group = Mock()
        getattr(backend.AllhandsBackend, name)(SimpleNamespace(group=group), "tensors")
        getattr(group, name).assert_called_once_with("tensors")


def test_a_group_of_this_backend_in_a_world_of_another(tmp_path):
    source = """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    init("gloo")
    group = dist.new_group(backend="allhands")
    mesh = init_device_mesh(
        "cpu", (2, 1), mesh_dim_names=("a", "b"), backend_override={"a": "allhands"})
    x = torch.ones(2)
    dist.all_reduce(x, group=group)
    dist.all_reduce(x)
    whole = distribute_tensor(torch.arange(4.0), mesh["a"], [Shard(0)]).full_tensor()
    names = [dist.get_backend(mesh.get_group(name)) for name in ("a", "b")]
    dist.distributed_c10d._abort_process_group(group)
    dist.barrier()
    give([names, x.tolist(), whole.tolist()])
    """
    with TorchJob(tmp_path, 2, source) as job:
        assert job.join() == [[["allhands", "gloo"], [4, 4], [0, 1, 2, 3]]] * 2


def test_a_monitored_barrier_names_who_does_not_come(tmp_path):
    source = """
    init("allhands")
    group = dist.group.WORLD
    group.monitored_barrier()
    if rank != 1:
        try:
            group.monitored_barrier(timedelta(seconds=0.5), wait_all_ranks=True)
        except RuntimeError as error:
            give(str(error))
        open(f"{folder}/done{rank}", "w").close()
    else:
        while not all(os.path.exists(f"{folder}/done{other}") for other in (0, 2)):
            time.sleep(0.01)
    """
    with TorchJob(tmp_path, 3, source) as job:
        for text in job.join(dead=(1,)):
            assert "missing [1]" in text


def test_checkpoints_are_saved_in_the_background(tmp_path):
    source = """
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    def state():
        mesh = init_device_mesh("cpu", (size,))
        return {"x": distribute_tensor(torch.arange(6.0), mesh, [Shard(0)])}

    init("allhands")
    kind = AsyncCheckpointerType.THREAD
    saved = state()
    done = checkpoint.async_save(
        saved, checkpoint_id=f"{folder}/saved", async_checkpointer_type=kind,
        process_group=dist.new_group())
    dist.all_reduce(torch.ones(3))  # meanwhile
    done.result()
    loaded = {"x": torch.zeros_like(state()["x"])}
    checkpoint.load(loaded, checkpoint_id=f"{folder}/saved")
    give(loaded["x"].full_tensor().tolist())
    dist.destroy_process_group()
    """
    with TorchJob(tmp_path, 2, source) as job:
        assert job.join() == [[0, 1, 2, 3, 4, 5]] * 2


def test_another_device_is_refused():
    done = run(
        """if True:
        import torch, torch.distributed as dist
        try:
            dist.init_process_group(
                "cpu:gloo,xpu:allhands", store=dist.HashStore(), rank=0, world_size=1)
        except ValueError as error:
            print(error)
        dist.init_process_group(
            "allhands", store=dist.HashStore(), rank=0, world_size=1)
        try:
            dist.all_reduce(torch.empty(3, device="meta"))
        except RuntimeError as error:
            print(error)
        """
    )
    device, tensor = done.stdout.splitlines()
    assert "'cpu:gloo,xpu:allhands'" in device
    assert "serves the tensors of devices 'cpu' and 'cuda' only" in device
    assert "the tensor is on meta, and this call takes arrays in CPU memory" in tensor


@pytest.mark.parametrize(
    ("version", "is_tested"),
    [("2.12.1", False), ("2.13.0+cpu", True), ("2.15.2", True), ("2.16.0a0", False)],
)
def test_an_untested_torch_is_told(monkeypatch, recwarn, version, is_tested):
    monkeypatch.setattr(torch, "__version__", version)
    store = torch.distributed.HashStore()
    options = SimpleNamespace(
        store=store,
        group_rank=0,
        group_size=1,
        timeout=timedelta(seconds=5),
        global_ranks_in_group=[],
    )
    creation.create(options, None)
    texts = [str(warning.message) for warning in recwarn]
    expected = f"allhands was tested with torch 2.13 to 2.15, this is torch {version}"
    assert texts == ([] if is_tested else [expected])


@old
def test_an_old_torch_combines_no_backends():
    done = run(
        """if True:
        import torch.distributed as dist
        try:
            dist.init_process_group(
                "cpu:allhands,cuda:nccl", store=dist.HashStore(), rank=0, world_size=1)
        except RuntimeError as error:
            print(error)
        """
    )
    assert "'cpu:allhands,cuda:nccl'" in done.stdout
    assert "torch 2.14 can" in done.stdout


@newest
def test_torch_finds_the_backend_where_it_loads_no_devices(monkeypatch):
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    done = run(
        """if True:
        import torch.distributed as dist
        print(hasattr(dist.Backend, "ALLHANDS"))
        dist.init_process_group(
            "allhands", store=dist.HashStore(), rank=0, world_size=1)
        print(dist.get_backend())
        """
    )
    assert done.stdout.split() == ["False", "allhands"]


@new
def test_backends_are_combined(tmp_path):
    source = """
    import torch.testing._internal.distributed.fake_pg  # another backend
    init("cpu:allhands,cuda:fake")
    given = [type(dist.group.WORLD).__name__]
    for group in (
        None,
        dist.new_group([0, 1], backend="cpu:allhands,cuda:fake"),
    ):
        x, y = torch.full((3,), rank + 1.0), torch.zeros(2, 3)
        dist.all_reduce(x, group=group)
        dist.all_gather_into_tensor(y, x + rank, group=group)
        dist.monitored_barrier(group)
        objects = [None, None]
        dist.all_gather_object(objects, rank, group=group)
        work = dist.all_reduce(x, async_op=True, group=group)
        work.wait()
        future = dist.all_reduce(x, async_op=True, group=group).get_future()
        with dist._coalescing_manager(group, torch.device("cpu")):
            for part in y:
                dist.all_reduce(part, group=group)
        given.append([y.tolist(), objects, future.wait()[0].tolist()])
    module = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    module(torch.ones(1, 2) * rank).sum().backward()
    given.append(module.module.weight.grad.tolist())
    dist.destroy_process_group()
    give(given)
    """
    ascending = [[[6] * 3, [8] * 3], [0, 1], [12] * 3]
    expected = ["ProcessGroup", ascending, ascending, [[0.5, 0.5]]]
    with TorchJob(tmp_path, 2, source) as job:
        assert job.join() == [expected] * 2


@new
def test_combined_backends_are_wrapped_for_debugging(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "0")  # torch cannot record a wrapper
    # Not with a second backend from elsewhere: of two torch keeps the first only, and
    # closes what the other's wrapper has of Gloo while another rank connects to that.
    source = """
    import gc
    init("cpu:allhands,cuda:gloo")
    gc.collect()
    x = torch.ones(2)
    dist.all_reduce(x)
    try:
        dist.all_reduce(torch.ones(2 + rank))
    except RuntimeError as error:
        told = "Detected mismatch" in str(error)
    dist.destroy_process_group()
    give([x.tolist(), told])
    """
    with TorchJob(tmp_path, 2, source) as job:
        assert job.join() == [[[2, 2], True]] * 2


@newest
def test_combined_backends_are_split(tmp_path):
    source = """
    import torch.testing._internal.distributed.fake_pg  # another backend
    init("cpu:allhands,cuda:fake")
    part = dist.split_group(split_ranks=[[1, 0]], backend="cpu:allhands")
    parts = [torch.zeros(1) for _ in range(2)]
    dist.all_gather(parts, torch.ones(1) * rank, group=part)
    dist.destroy_process_group()
    give([part.rank(), *[x.item() for x in parts]])
    """
    with TorchJob(tmp_path, 2, source) as job:
        assert job.join() == [[1, 1, 0], [0, 1, 0]]


@newest
def test_the_newer_functions_of_torch_take_our_groups(tmp_path):
    source = """
    init("allhands")
    part = dist.split_group(split_ranks=[[1, 0]])
    x = torch.full((2,), float(rank))
    whole = torch.zeros(4) if rank == 1 else None
    dist.gather_single(x, whole, dst=1, group=part)
    dist.monitored_barrier(timeout=timedelta(seconds=30))
    name = dist.get_backend(part)
    dist.destroy_process_group()
    give([name, dist.is_initialized(), None if whole is None else whole.tolist()])
    """
    with TorchJob(tmp_path, 2, source) as job:
        assert job.join() == [
            ["allhands", False, None],
            ["allhands", False, [1, 1, 0, 0]],
        ]


@newest
def test_operations_are_in_the_flight_record(tmp_path, monkeypatch):
    monkeypatch.setitem(os.environ, "TORCH_FR_BUFFER_SIZE", "100")
    source = """
    import json
    from torch._C import _distributed_c10d as c10d
    init("allhands")
    x = torch.ones(3)
    dist.all_reduce(x)
    dist.broadcast(x, 0)
    record = json.loads(c10d._dump_fr_trace_json(backend="allhands"))
    dist.destroy_process_group()
    give([[entry["profiling_name"], entry["input_sizes"], entry["collective_seq_id"]]
          for entry in record["entries"]] + x.tolist())
    """
    with TorchJob(tmp_path, 2, source) as job:
        assert (
            job.join()
            == [
                [
                    ["allhands:all_reduce", [[3]], 1],
                    ["allhands:broadcast", [[3]], 2],
                    *(2, 2, 2),
                ]
            ]
            * 2
        )
