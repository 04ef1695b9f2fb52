"""Backends that are registered, and those that serve devices."""

from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from allhands.backends.communicator import Communicator
from allhands.backends.fake import FakeCommunicator, FakeWork
from allhands.backends.registry import Backend
from harness.ranks import run_ranks


def test_names_are_lower_case_strings():
    assert Backend("GLOO") == "gloo"
    assert Backend("foo") == "foo"
    assert isinstance(Backend("foo"), str)
    assert Backend.NATIVE == "native"
    with pytest.raises(ValueError, match="must be string-ish, got 5"):
        Backend(5)


@pytest.mark.parametrize("device", ["cpu", "cpu:0"])
def test_the_default_backend_of_a_device(device):
    assert dist.get_default_backend_for_device(device) == "native"


def test_a_device_without_a_default_backend():
    with pytest.raises(ValueError, match=r"not registered for device : tpu; .* cpu"):
        dist.get_default_backend_for_device("tpu")


def test_a_registered_backend_serves_its_groups(registered):
    calls = []

    def make(store, rank, size, timeout):
        calls.append((rank, size, timeout.total_seconds()))
        store.set("seen", "yes")
        return FakeCommunicator()

    registered("Mine", make, devices="cpu")
    assert Backend.MINE == "mine"
    assert Backend.backend_capability["mine"] == ["cpu"]

    def body(rank):
        assert dist.get_backend() == "mine"
        assert dist.get_backend_config() == "cpu:mine"
        store = dist.group.WORLD.get_group_store()
        return store.get("cpu//seen")

    assert run_ranks(1, body, backend="mine", timeout=7) == [b"yes"]
    assert calls == [(0, 1, 7.0)]


def test_the_extended_api_gets_options(registered):
    seen = []

    def make(options, pg_options):
        seen.append((options.global_ranks_in_group, options.group_id, pg_options))
        return FakeCommunicator()

    registered("mine", make, extended_api=True, devices=["cpu", "tpu"])
    defaults = {"cpu": "native", "cuda": "nccl", "tpu": "mine"}
    assert Backend.default_device_backend_map == defaults
    store = dist.HashStore()
    dist.init_process_group("mine", store=store, rank=1, world_size=3, pg_options="o")
    dist.new_group([1, 2])
    dist.destroy_process_group()
    assert seen == [([0, 1, 2], "0", "o"), ([1, 2], "1", None)]


class Recording(dist.ProcessGroup):
    """A group of a user's own, in torch's spelling, which notes its calls."""

    def __init__(self, rank, size):
        super().__init__(rank, size)
        self.calls = []

    def _note(self, name, *arguments):
        self.calls.append((name, *arguments))
        return FakeWork([])


def note(name):
    return lambda self, *arguments: self._note(name, *arguments)


OWN = ["allreduce", "reduce", "reduce_scatter", "_reduce_scatter_base", "broadcast"]
OWN += ["allgather", "_allgather_base", "gather", "scatter", "alltoall"]
OWN += ["alltoall_base", "barrier", "send", "recv", "recv_anysource"]


def test_a_registered_process_group_becomes_the_world(registered):
    kind = type("Mine", (Recording,), {name: note(name) for name in OWN})
    registered(
        "mine", lambda store, rank, size, timeout: kind(rank, size), devices="cpu"
    )

    def body(rank):
        x, parts = np.zeros(1), [np.zeros(1)]
        dist.all_reduce(x, dist.ReduceOp.MAX)
        assert dist.reduce(x, 0, async_op=True).wait()
        dist.reduce_scatter(x, parts)
        dist.reduce_scatter_single(x, x)
        dist.broadcast(x, 0, timeout=timedelta(seconds=3))
        dist.all_gather(parts, x)
        dist.all_gather_single(x, x)
        dist.gather(x, parts)
        dist.scatter(x, parts)
        dist.all_to_all(parts, parts)
        dist.all_to_all_single(x, x)
        dist.barrier()
        group = dist.group.WORLD
        group.communicator.send(x, 1, 2, None)
        assert group.communicator.recv(x, 1, 2, None) == 1
        assert group.communicator.irecv(x, None, 2, None).wait()
        assert type(group) is kind
        assert [call[0] for call in group.calls] == OWN
        assert group.calls[0][1][0] is x
        assert group.calls[0][2].reduceOp.op is dist.ReduceOp.MAX
        assert group.calls[4][2].timeout == timedelta(seconds=3)
        assert group.calls[7][1] == [parts]
        assert group.calls[10][3:5] == ([], [])

    run_ranks(1, body, backend="mine")


def test_shutdown_may_be_overridden_as_in_torch(registered):
    ended = []

    class Mine(Recording):
        def shutdown(self):
            ended.append(self.group_name)

    registered(
        "mine", lambda store, rank, size, timeout: Mine(rank, size), devices="cpu"
    )

    def body(rank):
        dist.destroy_process_group(dist.new_group())
        dist.new_group()

    run_ranks(1, body, backend="mine")
    assert ended == ["1", "2", "0"]


def test_a_registered_process_group_need_not_do_everything(registered):
    registered(
        "mine", lambda store, rank, size, timeout: Recording(rank, size), devices="cpu"
    )

    def body(rank):
        with pytest.raises(RuntimeError, match="Recording does not support allreduce"):
            dist.all_reduce(np.zeros(1))

    run_ranks(1, body, backend="mine")


def test_a_process_group_that_nothing_made_says_so():
    group = dist.ProcessGroup(0, 1)
    assert (group.rank(), group.size()) == (0, 1)
    with pytest.raises(RuntimeError, match="No backend type associated with"):
        group.allreduce([np.zeros(1)])
    with pytest.raises(RuntimeError, match="No backend type associated with"):
        group.barrier()


def test_a_backend_has_to_return_a_group(registered):
    registered("mine", lambda *_: 5, devices="cpu")

    def body(rank):
        with pytest.raises(TypeError, match=r"'mine'.* return a ProcessGroup.* not 5"):
            dist.init_process_group(
                "mine", store=dist.HashStore(), rank=0, world_size=1
            )
        return dist.is_initialized()

    assert run_ranks(1, body, init=False) == [False]


def test_a_name_that_is_registered_again_is_replaced(registered):
    registered("mine", lambda *_: None, devices="cpu")
    Backend.register_backend("mine", lambda *_: FakeCommunicator(), devices="cpu")
    assert Backend.backend_list.count("mine") == 1

    def body(rank):
        assert isinstance(dist.get_backend_impl(), FakeCommunicator)

    run_ranks(1, body, backend="mine")
    with pytest.raises(ValueError, match="choose another name"):
        Backend.register_backend("native", lambda *_: None)


def test_a_backend_that_names_no_devices_is_taken_for_cpu_and_cuda(registered):
    with pytest.warns(UserWarning, match="Device capability of mine unspecified"):
        registered("mine", lambda *_: None)
    assert str(dist.BackendConfig("mine")) == "cpu:mine,cuda:mine"


class CanSendOnly(Communicator):
    """A backend that does one thing; it notes the calls."""

    def __init__(self):
        self.calls = []

    def submit(self, call):
        if call.op != "send":
            return super().submit(call)
        self.calls.append("send")

    def set_timeout(self, timeout):
        self.calls.append(f"timeout {timeout.total_seconds():g}")

    def abort(self, reason):
        self.calls.append(reason)

    def close(self, grace):
        self.calls.append("close")


def test_a_backend_says_what_it_cannot_do():
    with pytest.raises(NotImplementedError, match="CanSendOnly does not support barri"):
        CanSendOnly().barrier(None, False)


def test_a_device_type_that_nobody_knows_is_refused(registered):
    with pytest.raises(ValueError, match="Unknown device type 'abacus' in"):
        dist.init_process_group("abacus:native", rank=0, world_size=1)
    registered("mine", lambda *_: None, devices="abacus")
    assert str(dist.BackendConfig("abacus:mine,mps:fake")) == "abacus:mine,mps:fake"


def test_a_call_goes_to_the_backend_of_its_arrays(registered):
    there = CanSendOnly()
    registered("there", lambda *_: there, devices="meta")
    tensor = pytest.importorskip("torch").empty(1, device="meta")

    def body(rank):
        group = dist.new_group(backend="cpu:native,meta:there")
        x, [left, right] = np.ones(2), np.zeros((2, 2))
        dist.all_reduce(x, group=group)
        dist.all_gather([left], x, group)
        dist.all_reduce_init(x, group=group)()
        with dist._coalescing_manager(group):
            dist.broadcast(right, 0, group)
        dist.barrier(group)
        assert dist.empty_shared(3, "f4", group).tolist() == [0, 0, 0]
        assert left.tolist() == [1, 1]
        assert there.calls == []
        with pytest.raises(TypeError, match="of an array type"):
            dist.all_reduce([1.0], group=group)
        group.communicator.send(tensor, 1, 0, None)
        group.set_timeout(timedelta(seconds=3))
        group.abort("enough")
        dist.destroy_process_group(group)
        assert there.calls == ["send", "timeout 3", "enough", "close"]

    run_ranks(1, body)


@pytest.mark.parametrize("given", ["theirs", dist.NativeOptions("rank"), None])
def test_each_backend_of_a_group_gets_the_options_of_its_kind(registered, given):
    seen = []

    def make(options, pg_options):
        seen.append(pg_options)
        return FakeCommunicator()

    registered("mine", make, extended_api=True, devices="abacus")

    def body(rank):
        dist.new_group(backend="cpu:native,abacus:mine", pg_options=given)
        dist.new_group(backend="cpu:fake,abacus:mine", pg_options=given)
        return dist.get_backend_config()

    assert run_ranks(1, body, backend="cpu:native") == ["cpu:native"]
    assert seen == [given if given == "theirs" else None, given]


def test_a_backend_that_cannot_be_made_leaves_nothing_of_the_others(registered):
    made = []

    def make(*_):
        made.append(CanSendOnly())
        return made[-1]

    def refuse(*_):
        raise LookupError("no abacus")

    registered("first", make, devices="first")
    registered("second", refuse, devices="second")
    registered("third", lambda *_: Recording(0, 1), devices="third")

    def body(rank):
        with pytest.raises(LookupError, match="no abacus"):
            dist.new_group(backend="first:first,second:second")
        group = dist.new_group(backend="first:first,third:third")
        assert type(group) is Recording

    run_ranks(1, body, backend="cpu:native")
    assert [each.calls for each in made] == [["close"], ["close"]]


def test_the_native_backend_takes_no_options_of_others():
    store = dist.HashStore()
    with pytest.raises(TypeError, match="takes NativeOptions as pg_options, got 'x'"):
        dist.init_process_group(store=store, rank=0, world_size=1, pg_options="x")
    assert not dist.is_initialized()


class TorchsWork(dist.Work):
    """As backends for torch have them: it overrides only wait()."""

    def wait(self, timeout=timedelta(0)):
        self.waits = [*getattr(self, "waits", []), timeout]
        return True


def test_a_work_may_override_only_wait(registered):
    works = []

    class Mine(dist.ProcessGroup):
        def allreduce(self, tensors, opts):
            works.append(TorchsWork())
            return works[-1]

        def getBackendName(self):
            return "mine-2.0"

    registered(
        "mine", lambda store, rank, size, timeout: Mine(rank, size), devices="cpu"
    )

    def body(rank):
        assert dist.group.WORLD.name() == "mine-2.0"
        dist.all_reduce(np.ones(1))
        work = dist.all_reduce(np.ones(1), async_op=True)
        assert work.wait(timedelta(seconds=3))
        assert not work.is_completed()
        assert work.exception() is None
        assert work.timeout == timedelta(0)
        with pytest.raises(NotImplementedError, match="TorchsWork does not tell when"):
            work.get_future()
        request = dist.all_reduce_init(np.ones(1))
        request.start()
        assert request.wait()
        assert not request.is_active()

    run_ranks(1, body, backend="mine")
    assert [work.waits for work in works] == [
        [timedelta(0)],
        [timedelta(seconds=3)],
        [timedelta(0)],
    ]


def test_a_work_that_overrides_nothing_says_so():
    with pytest.raises(NotImplementedError, match=r"Work does not override wait\(\)"):
        dist.Work().wait()


def test_which_backend_serves_a_device():
    def body(rank):
        world = dist.group.WORLD
        assert dist.get_backend_impl() is world.communicator
        assert dist.get_backend_impl(world, "cpu:0") is world.communicator
        with pytest.raises(
            RuntimeError, match=r"device type tpu: group '0' serves cpu"
        ):
            dist.get_backend_impl(device="tpu")

    run_ranks(1, body)


def test_the_tables_of_backends_hold_what_torchs_hold(registered):
    def make(*arguments):
        raise AssertionError("no group is made")

    registered("mine", make, devices="cpu")
    plugin = Backend._plugins["MINE"]
    assert isinstance(plugin, Backend._BackendPlugin)
    assert (plugin.creator_fn, plugin.extended_api) == (make, False)
    kinds = dist.ProcessGroup.BackendType
    assert Backend.backend_type_map["mine"] is kinds.CUSTOM
    assert Backend.backend_type_map["gloo"] is kinds.GLOO
    assert Backend.backend_type_map["undefined"] is kinds.UNDEFINED
