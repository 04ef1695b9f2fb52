"""What torch's profiler shows of operations."""

import threading

import pytest

from allhands.backends.call import Call
from allhands.backends.fake import FakeCommunicator, FakeWork
from harness.ranks import LIMIT
from harness.torch_jobs import TorchJob

torch = pytest.importorskip("torch")


class ToldByOthers(FakeWork):
    """Has ended; another thread calls what was to be called then."""

    def __init__(self, error):
        super().__init__([])
        self.error = error

    def wait_for(self, timeout):
        if self.error:
            raise self.error

    def exception(self):
        return self.error

    def add_done_callback(self, callback):
        threading.Thread(target=callback, daemon=True).start()


@pytest.mark.parametrize("error", [None, ValueError("lost")])
def test_an_event_has_ended_when_a_wait_has(monkeypatch, error):
    """A program may stop the profile then, which frees the event's memory."""
    from allhands.torch import profiled

    is_ending, may_end = threading.Event(), threading.Event()
    ended, seen = [], []

    class Future(torch.futures.Future):
        def set_result(self, result):
            is_ending.set()
            may_end.wait(LIMIT)
            super().set_result(result)
            ended.append(True)

    class Carrier(FakeCommunicator):
        def submit(self, call):
            return ToldByOthers(error)

    def wait():
        try:
            work.wait()
        except ValueError:
            seen.append("lost")
        seen.extend(ended)

    monkeypatch.setattr(torch.futures, "Future", Future)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        call = Call("barrier", async_op=True)
        work = profiled.ProfiledCommunicator(Carrier(), "x").submit(call)
        assert is_ending.wait(LIMIT)
        waiter = threading.Thread(target=wait)
        waiter.start()
        waiter.join(0.5)
        assert waiter.is_alive()
        may_end.set()
        waiter.join(LIMIT)
    assert seen == (["lost"] if error else []) + [True]


def test_own_operations_are_events_of_a_profile(tmp_path):
    source = """
    import contextlib
    import allhands
    import numpy as np
    from allhands.torch import profiler_events
    from torch.profiler import ProfilerActivity, profile

    store = allhands.FileStore(f"{folder}/own", size)
    allhands.init_process_group(store=store, rank=rank, world_size=size)
    x, y = torch.ones(4), torch.ones(8)
    events = {}

    def step():
        allhands.all_reduce(x)
        allhands.all_gather_single(y, x)
        allhands.all_reduce(x, async_op=True).wait()
        allhands.all_reduce(np.ones(2))

    def taken(name, *blocks):
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as seen:
            with contextlib.ExitStack() as stack:
                for block in blocks:
                    stack.enter_context(block)
                step()
                if len(blocks) == 1:
                    pair = allhands.new_group([0, 1])
                    allhands.barrier(group=pair)
                    lent = allhands.torch.process_group()
                    dist.all_reduce(x)
                    try:
                        allhands.all_reduce(torch.ones(2 + rank))
                    except allhands.DistError:
                        allhands.all_reduce(torch.ones(3))
        events[name] = [
            (event.name, event.input_shapes) for event in seen.events()
            if event.name.startswith("allhands:")]

    taken("without")
    taken("with", profiler_events())
    taken("nested", profiler_events(), profiler_events())
    taken("after")
    with profiler_events():
        step()  # with no profile taken
    give(events)
    """
    once = [
        ["allhands:all_reduce", [[4]]],
        ["allhands:all_gather", [[4]]],
        ["allhands:all_reduce", []],
        ["allhands:all_reduce", []],
    ]
    with TorchJob(tmp_path, 2, source) as job:
        for rank, events in enumerate(job.join()):
            assert events == {
                "without": [],
                "with": [
                    *once,
                    ["allhands:barrier", []],
                    ["allhands:all_reduce", [[4]]],
                    ["allhands:all_reduce", [[2 + rank]]],
                    ["allhands:all_reduce", [[3]]],
                ],
                "nested": once,
                "after": [],
            }


def test_the_end_of_a_users_own_work_need_not_be_told(tmp_path):
    source = """
    import allhands
    from allhands.backends.communicator import Communicator
    from allhands.torch import profiler_events
    from torch.profiler import profile

    class OwnWork(allhands.Work):
        is_over = False

        def wait(self, timeout=None):
            self.is_over = True
            return True

        def is_completed(self):
            return self.is_over

    class Own(Communicator):
        def submit(self, call):
            return OwnWork() if call.async_op else None

        def set_timeout(self, timeout):
            pass

        def abort(self, reason):
            pass

        def close(self, grace):
            pass

    allhands.Backend.register_backend("own", lambda *_: Own(), devices=["cpu"])
    store = allhands.FileStore(f"{folder}/own", size)
    allhands.init_process_group("own", store=store, rank=rank, world_size=size)
    with profile() as seen, profiler_events():
        allhands.all_reduce(torch.ones(2), async_op=True).wait()
    give([event.name for event in seen.events() if "allhands" in event.name])
    """
    with TorchJob(tmp_path, 1, source) as job:
        assert job.join() == [["allhands:all_reduce"]]


def test_operations_are_events_of_a_profile(tmp_path):
    source = """
    from torch.profiler import ProfilerActivity, profile

    def profiled(step):
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as taken:
            step()
        return [e for e in taken.events() if e.name.startswith("allhands:")]

    def names(events):
        return [event.name for event in events]

    init("allhands")
    x, y = torch.ones(4), torch.ones(8)
    module = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))

    def step():
        dist.all_reduce(x)
        dist.all_gather_into_tensor(y, x)
        dist.reduce_scatter_tensor(x, y)
        dist.all_to_all_single(y, y.clone())
        dist.all_reduce_coalesced([x, y])
        if rank == 0:
            dist.send(x, 1)
        else:
            dist.recv(x, 0)
        dist.barrier()

    events = profiled(step)
    seen = names(events)
    shapes = [event.input_shapes for event in events[:4]]
    step()  # with no profile taken
    backward = names(profiled(lambda: module(torch.ones(1, 2)).sum().backward()))

    def slow():
        started = f"{folder}/started"
        while rank == 1 and not os.path.exists(started):
            time.sleep(0.01)
        if rank == 1:
            time.sleep(0.2)
        work = dist.all_reduce(x, async_op=True)
        open(started, "w").close()
        work.wait()

    [waited] = [
        event.time_range.elapsed_us() for event in profiled(slow)
        if event.name == "allhands:all_reduce"]
    given = []
    def fail():
        try:
            dist.all_reduce(torch.ones(2 + rank))
        except RuntimeError as error:
            given.append("called different things" in str(error))
    given += names(profiled(fail))
    give([seen, shapes, backward, rank == 1 or waited > 150_000, given])
    """
    message = {0: "send", 1: "recv"}
    with TorchJob(tmp_path, 2, source) as job:
        for rank, given in enumerate(job.join()):
            seen, shapes, backward, has_waited, failed = given
            assert seen == [
                f"allhands:{name}"
                for name in (
                    *("all_reduce", "all_gather", "reduce_scatter", "all_to_all"),
                    *("all_reduce", message[rank], "barrier"),
                )
            ]
            assert shapes == [[[4]], [[4]], [[8]], [[8]]]
            assert "allhands:all_reduce" in backward
            assert has_waited
            assert failed == [True, "allhands:all_reduce"]
