"""Hooks see the operations of a group; ranks are threads."""

from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from allhands.backends.hooks import HookedCommunicator, HookOpName
from harness.ranks import run_ranks


def test_hooks_see_each_operation():
    def body(rank):
        world, before, after = dist.group.WORLD, [], []
        plain = world.communicator
        world.register_pre_hook(1, before.append)
        world.register_post_hook(7, after.append)
        x, y = np.ones(2), np.zeros(2)
        dist.all_reduce(x)
        work = dist.broadcast(x, 1, async_op=True)
        work.wait()
        peer = 1 - rank
        works = [dist.isend(x, peer), dist.irecv(y, peer)]
        for message in works:
            message.wait()
        world.allreduce([x]).wait()
        request = dist.barrier_init()
        request()
        world.unregister_pre_hook(1)
        world.unregister_post_hook(7)
        world.unregister_post_hook(7)
        assert world.communicator is plain
        dist.barrier()

        names = ["ALLREDUCE", "BROADCAST", "SEND", "RECV", "ALLREDUCE", "BARRIER"]
        assert [told.name for told in before] == [HookOpName[name] for name in names]
        assert [told.name for told in after] == [told.name for told in before]
        assert [told.op_id for told in after] == [told.op_id for told in before]
        assert len({told.op_id for told in before}) == len(names)
        assert before[0].input_tensors[0] is x
        assert before[0].output_tensors[0] is x
        assert [told.root for told in before] == [-1, 1, peer, peer, -1, -1]
        assert [told.async_op for told in after] == [
            *(False, True, True, True, True, False)
        ]
        assert [told.work is None for told in after] == [
            not told.async_op for told in after
        ]
        assert after[1].work is work

    run_ranks(2, body)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_hooks_get_the_arrays_of_lists_in_lists():
    def body(rank):
        seen = []
        dist.group.WORLD.register_pre_hook(1, seen.append)
        outputs = [[np.zeros(2), np.zeros(3)] for _ in range(2)]
        inputs = [np.ones(2), np.ones(3)]
        dist.all_gather_coalesced(outputs, inputs)
        told = seen[0]
        wanted = [*inputs, *outputs[0], *outputs[1]]
        found = [*told.input_tensors, *told.output_tensors]
        assert [id(array) for array in found] == [id(array) for array in wanted]

    run_ranks(2, body)


def test_a_hook_id_is_used_once():
    def body(rank):
        world = dist.group.WORLD
        world.register_pre_hook(1, print)
        with pytest.raises(ValueError, match="has a pre hook 1"):
            world.register_pre_hook(1, print)
        world.register_post_hook(1, print)
        world.unregister_pre_hook(1)
        assert isinstance(world.communicator, HookedCommunicator)
        world.unregister_post_hook(1)

    run_ranks(1, body)


def test_what_a_pre_hook_raises_keeps_the_operation_from_beginning():
    def body(rank):
        def refuse(told):
            raise KeyError(told.op)

        x = np.ones(1)
        dist.group.WORLD.register_pre_hook(1, refuse)
        with pytest.raises(KeyError, match="all_reduce"):
            dist.all_reduce(x)
        dist.group.WORLD.unregister_pre_hook(1)
        dist.all_reduce(x)
        return x[0]

    assert run_ranks(2, body) == [2, 2]


def test_abort_hooks_are_called_when_the_group_breaks():
    def body(rank):
        group, told = dist.new_group(), []
        assert group.supports_abort_hooks
        group.register_abort_hook(1, lambda: told.append("abort"))
        with pytest.raises(dist.CollectiveMismatchError):
            dist.all_reduce(np.ones(1 + rank), group=group)
        assert told == []  # a mismatch does not break it
        if rank == 0:
            group.abort("enough")
            assert told == ["abort"]
        else:
            with pytest.raises(dist.DistBackendError, match="enough"):
                dist.barrier(group)
            assert told == ["abort"]

    run_ranks(2, body)


def test_abort_hooks_are_called_when_an_asynchronous_operation_fails():
    def body(rank):
        group, told = dist.new_group(), []
        group.register_abort_hook(1, lambda: told.append("abort"))
        if rank == 0:
            work = dist.barrier(group, async_op=True, timeout=timedelta(seconds=0.1))
            with pytest.raises(dist.CollectiveTimeoutError):
                work.wait()
            with pytest.raises(dist.DistBackendError):
                dist.barrier(group)
            assert told[0] == "abort"
        dist.barrier()

    run_ranks(2, body)


def test_what_no_backend_supports():
    def body(rank):
        world = dist.group.WORLD
        assert not world.supports_reconfigure
        assert not world.supports_window
        assert not world.supports_completion_hooks
        for call in (
            lambda: world.reconfigure(None),
            world.get_reconfigure_handle,
            world.new_window,
        ):
            with pytest.raises(RuntimeError, match="does not support"):
                call()

    run_ranks(1, body)
    with pytest.raises(RuntimeError, match="does not support reconfiguration"):
        dist.init_process_group(enable_reconfigure=True)
    assert not dist.is_initialized()


def test_set_timeout_of_a_group():
    def body(rank):
        dist.set_timeout(timedelta(seconds=7))
        assert dist.group.WORLD.timeout == timedelta(seconds=7)
        with pytest.raises(TypeError, match="timedelta"):
            dist.set_timeout(7)
        with pytest.raises(ValueError, match="Invalid process group"):
            dist.set_timeout(timedelta(seconds=7), dist.GroupMember.NON_GROUP_MEMBER)

    run_ranks(1, body)
