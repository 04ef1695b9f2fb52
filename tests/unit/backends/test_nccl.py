"""Backend nccl, on stand-ins for CUDA and NCCL; tests/engines has those on GPUs."""

import threading
import time
import weakref
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from harness import device_arrays, fake_cuda
from harness.device_arrays import Hidden
from harness.device_calls import SIZE, calls, numbers, on_device, values
from harness.ranks import run_ranks as run_in_threads


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch):
    device_arrays.use(monkeypatch)
    fake_cuda.install(monkeypatch)


def run_ranks(size, body, **options):
    return run_in_threads(size, body, backend="cpu:native,cuda:nccl", **options)


@pytest.mark.parametrize("is_async", [False, True])
def test_every_operation_does_what_native_does(is_async):
    def body(rank):
        beside = dist.new_group(backend="native").communicator
        communicator = dist.group.WORLD.get_backend("cuda")
        for expected, given in zip(calls(rank), calls(rank), strict=True):
            beside.submit(expected)
            call = replace(on_device(given), async_op=is_async)
            work = communicator.submit(call)
            if is_async:
                assert work.wait()
            assert (call.op, values(call.output)) == (call.op, values(expected.output))

    run_ranks(SIZE, body)


@pytest.mark.parametrize("dtype", ["f4", "f2", "i4", "u1", "?", "c8"])
def test_reductions(dtype):
    def body(rank):
        ops = ["SUM"] if dtype == "c8" else ["SUM", "PRODUCT", "MIN", "MAX"]
        ops += ["BAND", "BOR"] if dtype == "?" else ["AVG"] * (dtype[0] in "fc")
        beside = dist.new_group(backend="native")
        for name in ops:
            op = getattr(dist.ReduceOp, name)
            array = (np.arange(4) % 3 + rank).astype(dtype)
            there = Hidden(array.copy())
            dist.all_reduce(array, op, beside)
            dist.all_reduce(there, op)
            assert (name, there.tolist()) == (name, array.tolist())
        if dtype in ("f4", "f2", "c8"):
            there = Hidden(np.full(3, rank + 1, dtype))
            dist.all_reduce(there, dist.ReduceOp.PREMUL_SUM(rank + 0.5))
            assert there.tolist() == [0.5 + 2 * 1.5 + 3 * 2.5] * 3

    run_ranks(SIZE, body)


@pytest.mark.parametrize(
    ("op", "dtype", "text"),
    [
        ("BXOR", "?", "NCCL has no BXOR of Bool"),
        ("BAND", "i4", "NCCL has no BAND of Int32"),
        ("PRODUCT", "c8", "NCCL has no PRODUCT of Complex64"),
        ("SUM", "i2", "NCCL has no SUM of Int16"),
    ],
)
def test_what_nccl_lacks_is_refused(op, dtype, text):
    def body(rank):
        array = Hidden(np.ones(3, dtype))
        with pytest.raises(NotImplementedError, match=text):
            dist.all_reduce(array, getattr(dist.ReduceOp, op))
        dist.broadcast(array, 0)
        with pytest.raises(NotImplementedError, match="scan"):
            dist.scan(array, array)
        with pytest.raises(NotImplementedError, match="named"):
            dist.recv(array)
        with pytest.raises(ValueError, match="itself only within batch"):
            dist.send(array, rank)

    run_ranks(1, body)


def test_messages():
    def body(rank):
        array = Hidden(numbers(rank))
        for _ in range(3):  # before any collective: a communicator of the two
            if rank == 0:
                dist.send(array, 2)
            elif rank == 2:
                there = Hidden(np.zeros((5, 2))[:, 0])
                assert dist.recv(there, 0) == 0
                assert there.tolist() == numbers(0).tolist()
        dist.all_reduce(array)
        array.tolist()  # waits for the stream
        if rank == 1:
            dist.isend(array, 0).wait()
        elif rank == 0:
            array.values[...] = 0
            dist.irecv(array, 1).wait()
            assert array.tolist() == sum(map(numbers, range(SIZE))).tolist()

    run_ranks(SIZE, body)


def test_batches_of_messages():
    def body(rank):
        received = [Hidden(np.zeros(5)) for _ in range(SIZE)]
        ops = [dist.P2POp(dist.irecv, received[p], p) for p in range(SIZE)]
        mine = Hidden(numbers(rank))
        ops += [dist.P2POp(dist.isend, mine, p) for p in reversed(range(SIZE))]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        assert values(received) == [numbers(p).tolist() for p in range(SIZE)]

    run_ranks(SIZE, body)


def test_arrays_in_cpu_memory_and_objects_go_by_way_of_the_gpu():
    def body(rank):
        found = [None] * SIZE
        dist.all_gather_object(found, {"rank": rank})
        assert found == [{"rank": peer} for peer in range(SIZE)]
        column = np.zeros((5, 2))[:, 1]
        column[...] = rank
        dist.all_reduce(column)
        assert column.tolist() == [3.0] * 5
        dist.barrier()
        work = dist.barrier(async_op=True)
        work.wait()

    run_in_threads(SIZE, body, backend="nccl")


@pytest.mark.parametrize("is_async", [False, True])
def test_input_in_cpu_memory_is_the_programs_again_once_the_call_is_waited_for(
    is_async,
):
    def body(rank):
        group = dist.new_group(timeout=timedelta(seconds=1.5))
        there = [Hidden(np.zeros(5)) for _ in range(2)]

        def gather():
            work = dist.all_gather(there, numbers(rank), group, async_op=is_async)
            if is_async:
                work.wait()

        gather()
        if rank == 0:  # the GPU reads pinned memory when the stream has come there
            with pytest.raises(dist.CollectiveTimeoutError, match="all_gather #2"):
                gather()
        dist.barrier()

    run_ranks(2, body)


def test_an_array_may_go_before_its_operation_has_run():
    is_gone = threading.Event()

    def body(rank):
        dist.all_reduce(Hidden(np.ones(3)))
        values = np.ones(3)
        seen = weakref.ref(values)
        if rank == 1:
            assert is_gone.wait(100)
        dist.all_reduce(Hidden(values))
        del values
        if rank == 0:
            assert seen() is not None  # its stream waits for the other rank
            is_gone.set()
        fake_cuda.current().synchronize()

    run_ranks(2, body)


def test_a_handle_that_was_waited_for_keeps_no_input():
    def body(rank):
        there = [Hidden(np.zeros(3)) for _ in range(2)]
        mine = Hidden(np.ones(3))
        seen = weakref.ref(mine)
        work = dist.all_gather(there, mine, async_op=True)
        del mine
        assert seen() is not None
        work.wait()
        assert seen() is None  # before anybody looks for cycles
        fake_cuda.current().synchronize()
        assert work.is_completed()

    run_ranks(2, body)


def test_handles():
    def body(rank):
        array = Hidden(numbers(rank))
        work = dist.all_reduce(array, async_op=True)
        assert work.wait(timedelta(seconds=100))
        assert work.is_completed()
        assert work.is_success()
        assert work.result() == [array]
        work = dist.all_reduce(array, async_op=True)
        work.block_current_stream()
        assert work.get_future().wait() == [array]
        assert array.tolist() == (sum(map(numbers, range(SIZE))) * SIZE).tolist()

    run_ranks(SIZE, body)


def test_a_rank_that_does_not_come_ends_the_group():
    def body(rank):
        group = dist.new_group(timeout=timedelta(seconds=1.5))
        array = Hidden(numbers(rank))
        dist.all_reduce(array, group=group)
        array.tolist()
        if rank == 0:
            work = dist.all_reduce(array, group=group, async_op=True)
            with pytest.raises(dist.CollectiveTimeoutError, match="all_reduce #2"):
                work.wait(timedelta(seconds=100))
            with pytest.raises(dist.DistBackendError, match="broken since"):
                dist.all_reduce(array, group=group)
        dist.barrier()

    run_ranks(2, body)


def test_a_call_that_nobody_waits_for_is_found_by_the_next_one():
    def body(rank):
        group = dist.new_group(timeout=timedelta(seconds=1))
        array = Hidden(numbers(rank))
        dist.all_reduce(array, group=group)
        if rank == 0:
            dist.all_reduce(array, group=group)  # returns: it is in the stream
            communicator = group.get_backend("cuda")
            end = time.monotonic() + 100
            while communicator.failure is None and time.monotonic() < end:
                time.sleep(0.01)  # its thread finds it
            with pytest.raises(dist.CollectiveTimeoutError):
                dist.all_reduce(array, group=group)
        dist.barrier()

    run_ranks(2, body)


def test_ranks_that_do_not_come_to_connect_are_named():
    def body(rank):
        group = dist.new_group(timeout=timedelta(seconds=1))
        if rank < 2:
            with pytest.raises(dist.CollectiveTimeoutError) as raised:
                dist.all_reduce(Hidden(numbers(rank)), group=group)
            assert 2 in raised.value.ranks
            with pytest.raises(dist.DistBackendError, match="broken since"):
                dist.all_reduce(Hidden(numbers(rank)), group=group)
        dist.barrier()

    run_ranks(SIZE, body)


def test_an_abort_reaches_the_others():
    def body(rank):
        group = dist.new_group()
        array = Hidden(numbers(rank))
        dist.all_reduce(array, group=group)
        array.tolist()
        if rank == 1:
            group.abort()
            return
        work = dist.all_reduce(array, group=group, async_op=True)
        with pytest.raises(dist.DistBackendError, match=r"aborted|NCCL says"):
            work.wait(timedelta(seconds=100))

    run_ranks(2, body)


def test_arrays_of_another_gpu_are_refused():
    def body(rank):
        dist.all_reduce(Hidden(numbers(rank)))
        with pytest.raises(ValueError, match=r"on GPU 1, but .* began on GPU 0"):
            dist.all_reduce(Hidden(numbers(rank), device=1))
        with pytest.raises(ValueError, match="on GPU 1 and on GPU 0"):
            dist.all_gather([Hidden(numbers(0))], Hidden(numbers(0), device=1))

    run_ranks(1, body)


def test_options():
    def body(rank):
        options = dist.NcclOptions(max_ctas=4, net_name="Socket", blocking_wait=True)
        group = dist.new_group(backend="nccl", pg_options=options)
        array = Hidden(numbers(rank))
        work = dist.all_reduce(array, group=group, async_op=True)
        work.wait()
        assert work.is_completed()
        with pytest.raises(TypeError, match="takes NcclOptions"):
            dist.new_group(backend="nccl", pg_options=dist.NativeOptions())

    run_ranks(2, body)


def test_split_groups_come_from_the_communicator_of_their_parent():
    def body(rank):
        array = Hidden(numbers(rank))
        dist.all_reduce(array)
        store = dist.group.WORLD.get_backend("cuda")._store
        before = sorted(store.list_keys())
        half = dist.split_group(split_ranks=[[2, 0]])
        assert (half is None) == (rank == 1)
        if half is not None:
            array = Hidden(numbers(rank))
            dist.all_reduce(array, group=half)
            assert array.tolist() == (numbers(0) + numbers(2)).tolist()
            dist.broadcast(array, 2, group=half)
        color = None if rank == 0 else 7
        rest = dist.split_group_by_color(color, key=-rank)
        assert (rest is None) == (rank == 0)
        if rest is not None:
            assert rest.rank() == 2 - rank
            array = Hidden(numbers(rank))
            dist.broadcast(array, 2, group=rest)
            assert array.tolist() == numbers(2).tolist()
        assert sorted(store.list_keys()) == before
        dist.barrier()

    run_ranks(SIZE, body)


def test_observers_and_the_flight_recorder_see_operations():
    class Seen:
        def __init__(self):
            self.told = []

        def before(self, operation):
            self.told.append(operation)
            return len(self.told)

        def after(self, token, error):
            self.told.append((token, type(error)))

    def body(rank):
        group = dist.new_group(backend="nccl")
        seen = Seen()
        group.communicator.observe(seen)
        dist.all_reduce(Hidden(np.ones((2, 3), "f4")), group=group)
        with pytest.raises(NotImplementedError):
            dist.all_reduce(Hidden(np.ones(1, "i2")), group=group)
        dist.broadcast(Hidden(np.ones(2)), 0, group=group, async_op=True).wait()
        assert (seen.told[0].op, seen.told[0].count) == ("all_reduce", 6)
        assert (seen.told[0].group, seen.told[0].dtype) == (group.group_name, "float32")
        assert seen.told[1] == (1, type(None))
        assert (seen.told[2].sequence, seen.told[3]) == (2, (3, NotImplementedError))
        assert (seen.told[4].sequence, seen.told[4].root) == (2, 0)
        assert seen.told[4].async_op
        group.communicator.observe(None)
        work = dist.all_reduce(Hidden(np.ones(1)), group=group, async_op=True)
        work.wait(timedelta(seconds=100))
        assert len(seen.told) == 6
        told = group.communicator.flight_entries(1)
        assert [(each["op"], each["sequence"]) for each in told] == [
            ("broadcast", 2),
            ("all_reduce", 3),
        ]
        assert (told[1]["dtype"], told[1]["count"]) == ("float64", 1)
        assert told[1]["state"] == "completed"
        assert told[1]["ended"] >= told[1]["issued"]

    run_ranks(2, body)


def test_operations_in_a_graph_have_no_end_of_their_own():
    def body(rank):
        array = Hidden(numbers(rank))
        stream = fake_cuda.current()
        stream.is_captured = True
        with pytest.raises(RuntimeError, match="run one before the capture"):
            dist.all_reduce(array)
        stream.is_captured = False
        dist.all_reduce(array)
        array.tolist()
        stream.is_captured = True
        communicator = dist.group.WORLD.get_backend("cuda")
        work = dist.all_reduce(array, async_op=True)
        dist.all_reduce(array)
        assert work.is_completed()
        assert work.wait(timedelta(seconds=100))
        with pytest.raises(RuntimeError, match="some of the arrays are in CPU memory"):
            dist.all_gather([array], np.zeros(5))
        stream.is_captured = False
        states = [each["state"] for each in communicator.flight_entries(1)]
        assert states == ["completed"] * 2
        array.tolist()

    run_ranks(1, body)


def test_variables_of_torch_are_read(monkeypatch):
    def body(rank):
        array = Hidden(numbers(rank))
        dist.all_reduce(array)
        work = dist.all_reduce(array, async_op=True)
        work.wait()
        assert work.is_completed()
        options = dist.NcclOptions(blocking_wait=False, is_high_priority_stream=False)
        group = dist.new_group(backend="nccl", pg_options=options)
        dist.all_reduce(array, group=group)
        return [
            each.get_backend("cuda")._comms[0, 1].stream.priority
            for each in (dist.group.WORLD, group)
        ]

    monkeypatch.setenv("TORCH_NCCL_BLOCKING_WAIT", "1")
    monkeypatch.setenv("TORCH_NCCL_HIGH_PRIORITY", "1")
    assert run_ranks(2, body) == [[-1, 0]] * 2


def test_threads_of_the_package_do_not_end_captures():
    def body(rank):
        group = dist.new_group(backend="nccl")
        array = Hidden(numbers(rank))
        dist.all_reduce(array, group=group)
        array.tolist()
        communicator = group.get_backend("cuda")
        freed = dist.new_group(backend="nccl")
        dist.all_reduce(array, group=freed)
        array.tolist()
        dist.destroy_process_group(freed)
        group.abort()
        names = {communicator._watchdog._thread.name, "allhands aborts NCCL"}
        end = time.monotonic() + 100
        while not names <= fake_cuda.relaxed and time.monotonic() < end:
            time.sleep(0.01)
        names |= {"allhands connects NCCL", "allhands frees NCCL"}
        assert names <= fake_cuda.relaxed

    fake_cuda.relaxed.clear()
    run_ranks(1, body)


def test_a_flight_record_keeps_the_backends_of_a_group_apart():
    def body(rank):
        array = Hidden(numbers(rank))
        dist.all_reduce(np.ones(3))
        dist.all_reduce(array)
        dist.broadcast(array, 0)
        array.tolist()
        record = dist.debug.dump()
        assert list(record["pg_config"]) == ["0", "0/cuda"]
        seen = [
            (each["process_group"][0], each["op"], each["collective_seq_id"])
            for each in record["entries"]
            if each["op"] != "barrier"
        ]
        assert seen == [
            ("0", "all_reduce", 1),
            ("0/cuda", "all_reduce", 1),
            ("0/cuda", "broadcast", 2),
        ]
        assert record["pg_status"]["0/cuda"]["last_enqueued_collective"] == 2

    run_ranks(2, body)
