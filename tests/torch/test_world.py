"""Groups of a program of this package, lent to torch: one world, two APIs."""

import inspect
import signal

import pytest

from harness.torch_jobs import TorchJob

torch = pytest.importorskip("torch")

_WORLD = """
import numpy as np
import allhands
from allhands.torch import process_group
from torch import nn

def enter(number=0):
    allhands.init_process_group(
        init_method=f"file://{folder}/ours{number}", rank=rank, world_size=size,
        timeout=timedelta(seconds=60))

def refused(call, *arguments):
    try:
        call(*arguments)
    except Exception as error:
        return [type(error).__name__, str(error)]

def total(group=None):
    x = torch.ones(2)
    dist.all_reduce(x, group=group)
    return x[0].item()
"""


def job(folder, size, source):
    return TorchJob(folder, size, _WORLD + inspect.cleandoc(source))


def test_a_world_is_lent_with_all_that_torch_does_with_its_own(tmp_path):
    source = """
    from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.utils.data import DistributedSampler

    enter()
    pg = process_group()
    assert process_group() is pg is dist.group.WORLD
    assert (dist.get_rank(), dist.get_world_size()) == (rank, size)
    assert (dist.get_backend(), pg.size()) == ("allhands", size)
    assert total() == 3
    objects = [None] * size
    dist.all_gather_object(objects, rank)
    assert objects == [0, 1, 2]

    back = allhands.new_group([2, 0], sort_ranks=False)
    lent = process_group(back)
    if rank == 1:
        assert lent == dist.GroupMember.NON_GROUP_MEMBER
    else:
        assert process_group(back) is lent
        assert dist.get_process_group_ranks(lent) == [2, 0]
        assert dist.get_rank(lent) == allhands.get_rank(back)
        x = torch.tensor([rank])
        dist.broadcast(x, src=2, group=lent)
        assert x.item() == 2
        mesh = DeviceMesh.from_group(lent, "cpu")
        assert mesh.get_local_rank() == (0 if rank == 2 else 1)

    mesh = init_device_mesh("cpu", (size,))
    shards = distribute_tensor(torch.arange(6.0), mesh, [Shard(0)])
    assert shards.to_local().tolist() == [2 * rank, 2 * rank + 1]
    assert shards.full_tensor().tolist() == [0, 1, 2, 3, 4, 5]
    grid = init_device_mesh("cpu", (1, size), mesh_dim_names=("dp", "tp"))
    assert total(grid["tp"].get_group()) == 3
    for backend in (None, "gloo"):  # torch's own, which meet in our store
        pair = dist.new_group([0, 1], backend=backend)
        assert rank == 2 or total(pair) == 2
    assert list(DistributedSampler(range(6), shuffle=False)) == [rank, rank + 3]

    allhands.destroy_process_group()
    give(dist.is_initialized())
    """
    with job(tmp_path, 3, source) as ranks:
        assert ranks.join() == [False] * 3


def test_both_apis_make_one_sequence_of_operations(tmp_path):
    source = """
    enter()
    process_group()
    sums = []
    for step in range(20):
        x, y = torch.full((5,), step + rank), np.full(5, step - rank)
        works = [
            dist.all_reduce(x, async_op=True),
            allhands.all_reduce(y, async_op=True),
        ]
        for work in works[:: 1 if rank else -1]:
            work.wait()
        sums.append([x[0].item(), int(y[0])])
    if rank == 0:
        first = refused(dist.all_reduce, torch.ones(3))
    else:
        first = refused(allhands.broadcast, np.ones(4), 0)
    assert total() == 2
    give([sums, first])
    """
    with job(tmp_path, 2, source) as ranks:
        for sums, (name, text) in ranks.join():
            assert sums == [[2 * step + 1, 2 * step - 1] for step in range(20)]
            assert name == "CollectiveMismatchError"
            assert "all_reduce" in text
            assert "broadcast" in text


def test_ddp_on_a_lent_group_gives_what_gloo_gives(tmp_path):
    source = """
    def trained(wrap):
        torch.manual_seed(rank)  # the wrapper makes all start from rank 0's
        model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4))
        wrapped = wrap(model)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(4):
            torch.manual_seed(10 * step + rank)
            optimizer.zero_grad()
            wrapped(torch.randn(5, 8)).square().mean().backward()
            optimizer.step()
        return [p.detach().tolist() for p in model.parameters()]

    Theirs = nn.parallel.DistributedDataParallel
    Ours = allhands.torch.DistributedDataParallel
    init("gloo")
    wanted = trained(Theirs)
    dist.destroy_process_group()
    enter()
    world = allhands.group.WORLD
    given = [
        trained(lambda model: Ours(model)),
        trained(lambda model: Ours(model, None, None, 0, True, world, 0.0001)),
        trained(lambda model: Ours(model, process_group=dist.group.WORLD)),
        trained(lambda model: Ours(model, gradient_as_bucket_view=True)),
        trained(lambda model: Ours(model, static_graph=True, init_sync=True)),
        trained(Theirs),
    ]
    mesh = dist.device_mesh.init_device_mesh("cpu", (size,))
    given.append(trained(lambda model: Ours(model, device_mesh=mesh)))
    assert isinstance(Ours(nn.Linear(1, 1), broadcast_buffers=False), Theirs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no default is a deprecated argument
        Ours(nn.Linear(1, 1))
    give([one == wanted for one in given])
    """
    with job(tmp_path, 2, source) as ranks:
        assert ranks.join() == [[True] * 7] * 2


def test_a_rank_that_dies_is_named_by_our_error_out_of_torchs_calls(tmp_path):
    source = """
    enter()
    model = allhands.torch.DistributedDataParallel(nn.Linear(4, 4))
    dist.barrier()
    with allhands.debug.faults("rank=1,do=kill"):
        given = [
            refused(model(torch.ones(2, 4)).sum().backward),
            refused(dist.all_gather_object, [None] * size, rank),
            refused(dist.all_reduce, torch.ones(3)),
        ]
    give(given)
    """
    with job(tmp_path, 3, source) as ranks:
        for given in ranks.join(dead=(1,)):
            for name, text in given[1:]:
                assert name == "RankFailedError"
                assert "rank 1 (pid " in text
            assert "rank 1 (pid " in given[0][1]
        assert ranks.ranks[1].returncode == -signal.SIGKILL


def test_what_is_lent_ends_with_what_it_is_lent_of(tmp_path):
    source = """
    def tables():
        world = dist.distributed_c10d._world
        return [len(world.pg_map), len(world.pg_names), len(world.pg_group_ranks)]

    for number in range(3):
        enter(number)
        lent = process_group()
        part = allhands.new_group([0, 1])
        lent_part = process_group(part)
        theirs = dist.new_group([0, 1])
        assert total(lent_part) == total(theirs) == total() == 2
        assert tables() == [3, 3, 3]
        allhands.destroy_process_group(part)
        assert tables() == [2, 2, 2]
        texts = [refused(lent_part.allreduce, torch.ones(1))[1]]

        dist.destroy_process_group()  # torch's, and nothing of ours
        assert tables() == [0, 0, 0]
        texts.append(refused(lent.allreduce, torch.ones(1))[1])
        x = np.ones(1)
        allhands.all_reduce(x)
        assert x[0] == 2

        again = process_group()
        assert again is not lent and total() == 2
        again.set_timeout(timedelta(seconds=9))
        assert allhands.group.WORLD.timeout.total_seconds() == 9
        theirs = dist.new_group([0, 1])
        assert total(theirs) == 2
        allhands.destroy_process_group()
        assert tables() == [0, 0, 0]
        for group in (again, theirs):
            texts.append(refused(group.allreduce, torch.ones(1))[1])

    enter("last")
    process_group()
    dist.group.WORLD.abort()
    assert refused(allhands.barrier)[0] == "DistBackendError"
    give(texts)  # and end without saying good-bye
    """
    with job(tmp_path, 2, source) as ranks:
        for part, whole, again, theirs in ranks.join():
            assert "group 'allhands:1' was destroyed" in part
            for text in (whole, again):
                assert "group '0' was destroyed" in text
                assert "allhands.torch.process_group() lends a group again" in text
            assert "was destroyed" in theirs


def test_what_cannot_be_lent_is_refused(tmp_path):
    source = """
    import threading
    from allhands.groups.world import World, use
    given = [refused(process_group)]
    init("gloo")
    enter()
    given.append(refused(process_group))
    dist.destroy_process_group()
    merged = allhands.group.WORLD.merge_remote_group(allhands.HashStore(), 1)
    given.append(refused(process_group, merged))
    with use(World()):
        enter(1)
        given.append(refused(process_group))
        allhands.destroy_process_group()
    given.append(refused(process_group, 7))
    if not dist.is_initialized():
        process_group()
    init_again = refused(dist.init_process_group, "gloo")
    allhands.destroy_process_group()
    give([*given, init_again])
    """
    with job(tmp_path, 1, source) as ranks:
        [given] = ranks.join()
    wanted = [
        ("ValueError", "has not been initialized"),
        ("RuntimeError", "a world of its own already (backend 'gloo', 1 ranks)"),
        ("ValueError", "has ranks of other worlds"),
        ("RuntimeError", "one world per process"),
        ("ValueError", "Group 7 is not registered"),
        ("ValueError", "default process group twice"),
    ]
    assert [name for name, _ in given] == [name for name, _ in wanted]
    for (_, text), (_, part) in zip(given, wanted, strict=True):
        assert part in text


def test_a_lent_store_is_torchs_to_use(tmp_path):
    source = """
    from allhands.store.lent_store import LentStore
    store = allhands.HashStore()
    lent = LentStore(store)
    theirs = dist.PrefixStore("t", lent)
    theirs.set("a", "1")
    assert theirs.get("a") == b"1" == store.get("t/a")
    assert theirs.add("n", 2) == 2
    assert theirs.check(["a", "n"]) and not theirs.check(["b"])
    theirs.wait(["a"])
    assert refused(theirs.wait, ["b"], timedelta(seconds=0.01))[0] == "DistStoreError"
    assert theirs.compare_set("a", "1", "2") == b"2"
    assert theirs.multi_get(["a", "n"]) == [b"2", b"2"]
    theirs.multi_set(["c", "d"], ["3", "4"])
    theirs.append("d", "5")
    assert store.get("t/d") == b"45"
    assert theirs.num_keys() == store.num_keys() == 4
    assert theirs.delete_key("d") and not theirs.delete_key("d")
    assert theirs.has_extended_api()
    give("right")
    """
    with job(tmp_path, 1, source) as ranks:
        assert ranks.join() == ["right"]
