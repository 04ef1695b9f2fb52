"""Faults on demand in a program of torch.distributed on this engine."""

import pytest

import allhands

torch = pytest.importorskip("torch")


def test_operations_of_torch_meet_faults(monkeypatch):
    from torch import distributed as dist

    monkeypatch.setenv("ALLHANDS_FAULTS", "rank=0,op=all_reduce,nth=2,do=raise")
    store = dist.HashStore()
    dist.init_process_group("allhands", store=store, rank=0, world_size=1)
    try:
        x = torch.ones(2)
        dist.all_reduce(x)
        with pytest.raises(allhands.InjectedError, match="rank 0, all_reduce, call 2"):
            dist.all_reduce(x)
        dist.all_reduce(x)
        with allhands.debug.faults("op=broadcast,do=delay:1us") as asked:
            dist.broadcast(x, 0)
            dist.barrier()
        dist.broadcast(x, 0)
        assert asked.num_done == 1
        assert x.tolist() == [1, 1]
    finally:
        dist.destroy_process_group()
        monkeypatch.undo()
        allhands.groups.world.current().fault_point.read_setting()


def test_the_rank_is_that_in_torchs_world(monkeypatch):
    """Also where the engine carries a group of some of its ranks, and no other."""
    from torch import distributed as dist

    class Silent(dist.ProcessGroup):
        def getBackendName(self):
            return "silent"

        def _set_sequence_number_for_group(self):
            pass

    def silent(store, rank, size, timeout):
        return Silent(rank, size)

    dist.Backend.register_backend("silent", silent, devices=["cpu"])
    monkeypatch.setenv("ALLHANDS_FAULTS", "rank=1,op=all_reduce,do=raise")
    dist.init_process_group("silent", store=dist.HashStore(), rank=1, world_size=2)
    try:
        part = dist.new_group([1], backend="allhands", use_local_synchronization=True)
        with pytest.raises(allhands.InjectedError, match="rank 1, all_reduce, call 1"):
            dist.all_reduce(torch.ones(2), group=part)
    finally:
        dist.destroy_process_group()
        monkeypatch.undo()
        allhands.groups.world.current().fault_point.read_setting()
