"""The `timeout=` of every operation: rank 0 calls it, the other rank does not come."""

import re
import signal
import threading
import time
from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from allhands.groups.world import World, use
from harness.pace import patient
from harness.ranks import LIMIT as HANG_LIMIT
from harness.ranks import run_ranks

LIMIT = timedelta(milliseconds=60)
LARGE = np.zeros(10_000)  # a message of it waits for its receive


def pair():
    return [np.zeros(2), np.zeros(2)]


COLLECTIVES = {
    "all_reduce": lambda o: dist.all_reduce(np.zeros(2), **o),
    "reduce": lambda o: dist.reduce(np.zeros(2), 0, **o),
    "reduce_scatter": lambda o: dist.reduce_scatter(np.zeros(2), pair(), **o),
    "reduce_scatter_single": lambda o: dist.reduce_scatter_single(
        np.zeros(2), np.zeros(4), **o
    ),
    "reduce_scatter_tensor": lambda o: dist.reduce_scatter_tensor(
        np.zeros(2), np.zeros(4), **o
    ),
    "broadcast from here": lambda o: dist.broadcast(np.zeros(2), 0, **o),
    "broadcast from there": lambda o: dist.broadcast(np.zeros(2), 1, **o),
    "all_gather": lambda o: dist.all_gather(pair(), np.zeros(2), **o),
    "all_gather_single": lambda o: dist.all_gather_single(
        np.zeros(4), np.zeros(2), **o
    ),
    "all_gather_into_tensor": lambda o: dist.all_gather_into_tensor(
        np.zeros(4), np.zeros(2), **o
    ),
    "gather": lambda o: dist.gather(np.zeros(2), pair(), 0, **o),
    "gather_single": lambda o: dist.gather_single(np.zeros(2), np.zeros(4), 0, **o),
    "scan": lambda o: dist.scan(np.zeros(2), np.zeros(2), **o),
    "exscan": lambda o: dist.exscan(np.zeros(2), np.zeros(2), **o),
    "scatter": lambda o: dist.scatter(np.zeros(2), pair(), 0, **o),
    "scatter from there": lambda o: dist.scatter(np.zeros(2), None, 1, **o),
    "all_to_all": lambda o: dist.all_to_all(pair(), pair(), **o),
    "all_to_all_single": lambda o: dist.all_to_all_single(
        np.zeros(2), np.zeros(2), **o
    ),
    "barrier": lambda o: dist.barrier(**o),
    "all_reduce_coalesced": lambda o: dist.all_reduce_coalesced(pair(), **o),
    "all_gather_coalesced": lambda o: dist.all_gather_coalesced(
        [[np.zeros(2)], [np.zeros(2)]], [np.zeros(2)], **o
    ),
}

OTHERS = {
    "monitored_barrier": lambda limit: dist.monitored_barrier(timeout=limit),
    "send": lambda limit: dist.send(LARGE, 1, timeout=limit),
    "recv": lambda limit: dist.recv(np.zeros(2), 1, timeout=limit),
    "recv with a status": lambda limit: dist.recv(
        np.zeros(2), 1, tag=dist.ANY_TAG, timeout=limit, status=dist.Status()
    ),
    "probe": lambda limit: dist.probe(timeout=limit),
    "recv from any": lambda limit: dist.recv(np.zeros(2), timeout=limit),
    "sendrecv": lambda limit: dist.sendrecv(LARGE, np.zeros(2), 1, 1, timeout=limit),
    "isend": lambda limit: dist.isend(LARGE, 1, timeout=limit).wait(),
    "irecv": lambda limit: dist.irecv(np.zeros(2), 1, timeout=limit).wait(),
    "batch_isend_irecv": lambda limit: [
        work.wait()
        for work in dist.batch_isend_irecv(
            [dist.P2POp(dist.irecv, np.zeros(2), 1)], timeout=limit
        )
    ],
    "all_gather_object": lambda limit: dist.all_gather_object([0, 0], 0, timeout=limit),
    "gather_object": lambda limit: dist.gather_object(0, [0, 0], timeout=limit),
    "all_reduce_object": lambda limit: dist.all_reduce_object(0, timeout=limit),
    "reduce_object": lambda limit: dist.reduce_object(0, timeout=limit),
    "split_group_by_color": lambda limit: dist.split_group_by_color(0, timeout=limit),
    "broadcast_object_list": lambda limit: dist.broadcast_object_list(
        [0], 1, timeout=limit
    ),
    "scatter_object_list": lambda limit: dist.scatter_object_list(
        [0], [0, 0], timeout=limit
    ),
    "send_object_list": lambda limit: dist.send_object_list([LARGE], 1, timeout=limit),
    "recv_object_list": lambda limit: dist.recv_object_list([0], 1, timeout=limit),
    "_coalescing_manager": lambda limit: coalesced(limit),
}


def coalesced(limit):
    with dist._coalescing_manager():
        dist.all_reduce(np.zeros(2), timeout=limit)
        dist.all_reduce(np.zeros(2), timeout=limit)


def check_expires(call):
    is_over = threading.Event()

    def body(rank):
        if rank == 1:
            is_over.wait(HANG_LIMIT)
            return
        start = time.monotonic()
        try:
            with pytest.raises(dist.CollectiveTimeoutError) as caught:
                call()
        finally:
            is_over.set()
        took = time.monotonic() - start
        assert LIMIT.total_seconds() * 0.9 < took < patient(1, start)
        assert caught.value.ranks in ([1], [])
        assert re.search(r"0\.06|0\.059|60 ms", str(caught.value))

    run_ranks(2, body)


@pytest.mark.parametrize("async_op", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("call", COLLECTIVES.values(), ids=COLLECTIVES)
@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")
def test_a_collective_ends_at_its_limit(call, async_op):
    def ended():
        work = call({"timeout": LIMIT, "async_op": async_op})
        if async_op:
            (work.wait if isinstance(work, dist.Work) else work.result)()

    check_expires(ended)


@pytest.mark.parametrize("call", OTHERS.values(), ids=OTHERS)
def test_everything_else_ends_at_its_limit(call):
    check_expires(lambda: call(LIMIT))


@pytest.mark.parametrize(
    "call",
    [*COLLECTIVES.values(), *OTHERS.values()],
    ids=[*COLLECTIVES, *OTHERS],
)
@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")
def test_a_negative_limit_is_refused_and_breaks_nothing(call):
    negative = timedelta(seconds=-1)

    def body(rank):
        limit = negative if call in OTHERS.values() else {"timeout": negative}
        if rank == 0:
            with pytest.raises(ValueError, match=r"not be negative, got -1\.0 s"):
                call(limit)
        dist.barrier()

    run_ranks(2, body)


@pytest.fixture
def told(monkeypatch, capfd):
    """The lines on stderr of ranks that wait for more than 0.1 s."""
    monkeypatch.setenv("ALLHANDS_PATIENCE", "0.1")
    capfd.readouterr()
    return lambda: capfd.readouterr().err.splitlines()


@pytest.mark.parametrize("async_op", [False, True], ids=["sync", "async"])
def test_the_first_rank_that_waits_for_long_says_for_whom(told, async_op):
    """Before it comes, another may be the first."""
    is_told = threading.Event()
    lines = []

    def waits():
        work = dist.barrier(timeout=timedelta(seconds=HANG_LIMIT), async_op=async_op)
        if async_op:
            work.wait()

    def body(rank):
        dist.all_reduce(np.zeros(2))
        if rank == 0:
            while not any("missing [0, 2]" in line for line in lines):
                time.sleep(0.01)
                lines.extend(told())
            is_told.set()
        if rank == 2:
            is_told.wait(HANG_LIMIT)
        waits()

    run_ranks(4, body)
    [first, *_] = [line for line in lines if "missing [0, 2]" in line]
    assert re.fullmatch(
        r"allhands: \[rank1\] waiting: barrier\(\) #2 on group '0': rank 1 "
        r"\(this process\) has waited \d+\.\d\d s \(limit 200 s\); missing \[0, 2\]; "
        r"rank 0 was last in all_reduce #1, rank 2 was last in all_reduce #1",
        first,
    )
    assert not any("rank 3 (" in line and "missing [0, 2]" in line for line in lines)


# What rank 1 waits in, what ends its wait on rank 0, and how the line describes it.
MESSAGES = {
    "recv": (
        lambda: dist.recv(np.zeros(1), 0),
        lambda: dist.send(np.zeros(1), 1),
        ("recv", 1, "from rank 0"),
    ),
    "irecv": (
        lambda: dist.irecv(np.zeros(1), 0).wait(),
        lambda: dist.send(np.zeros(1), 1),
        ("recv", 1, "from rank 0"),
    ),
    "recv from any": (
        lambda: dist.recv(np.zeros(1)),
        lambda: dist.send(np.zeros(1), 1),
        ("recv", 1, "from any rank"),
    ),
    "send": (
        lambda: dist.send(LARGE, 0),
        lambda: dist.recv(LARGE.copy(), 1),
        ("send", len(LARGE), "to rank 0"),
    ),
    "sendrecv": (
        lambda: dist.sendrecv(np.zeros(1), np.zeros(1), dst=0, src=0),
        lambda: dist.sendrecv(np.zeros(1), np.zeros(1), dst=1, src=1),
        ("recv", 1, "from rank 0"),
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_rank_that_waits_for_a_message_says_so(name, told):
    waits, ends_it, (kind, count, whom) = MESSAGES[name]
    lines = []

    def body(rank):
        if rank == 1:
            return waits()
        while not any(f"{kind}(" in line for line in lines):
            time.sleep(0.01)
            lines.extend(told())
        return ends_it()

    run_ranks(2, body)
    line, *_ = [line for line in lines if f"{kind}(" in line]  # more if we were slow
    peer = "any rank" if "any" in whom else r"rank 0 \(pid \d+\)"
    assert re.fullmatch(
        rf"allhands: \[rank1\] waiting: {kind}\(float64, count {count}, {whom}, tag "
        rf"0\) on group '0': rank 1 \(this process\) has waited .* s \(limit 150 s\) "
        rf"for {peer}",
        line,
    )


def test_init_says_for_whom_it_waits(told):
    """One of the ranks that have come, 1 or 3; the others come once it has."""
    store = dist.HashStore()
    lines = []

    def body(rank):
        while rank == 3 and store.num_keys() < 2:  # rank 1's: it counts, and is there
            time.sleep(0.01)
        while rank in (0, 2) and not lines:
            time.sleep(0.01)
            if rank == 0:
                lines.extend(told())
        dist.init_process_group(
            store=store,
            rank=rank,
            world_size=4,
            timeout=timedelta(seconds=HANG_LIMIT),
        )

    run_ranks(4, body, init=False)
    assert len(lines) == 1
    assert re.fullmatch(
        r"allhands: \[rank[13]\] waiting: init_process_group: rank [13] "
        r"\(this process\) has waited 0\.1 s "
        r"\(limit 200 s\) for \d of 4 ranks, which did not come: \[0, 2(, 3)?\]",
        lines[0],
    )


def test_patience_without_end(monkeypatch, told):
    monkeypatch.setenv("ALLHANDS_PATIENCE", "0")
    check_expires(lambda: dist.barrier(timeout=LIMIT))
    assert told() == []


def as_if_by_a_signal(*_):
    raise KeyboardInterrupt


ENDINGS = {
    "call": lambda: dist.all_reduce(np.zeros(2), timeout=LIMIT),
    "wait": lambda: dist.all_reduce(np.zeros(2), timeout=LIMIT, async_op=True).wait(),
    "persistent": lambda: dist.all_reduce_init(np.zeros(2), timeout=LIMIT)(),
    "recv": lambda: dist.recv(np.zeros(2), 1, timeout=LIMIT),
}


@pytest.mark.parametrize("call", ENDINGS.values(), ids=ENDINGS)
def test_what_a_signal_raises_while_the_error_is_made_stands(call, monkeypatch):
    is_over = threading.Event()

    def body(rank):
        if rank == 1:
            is_over.wait(HANG_LIMIT)
            return
        monkeypatch.setattr("allhands.errors.CollectiveTimeoutError", as_if_by_a_signal)
        try:
            with pytest.raises(KeyboardInterrupt):
                call()
        finally:
            is_over.set()

    run_ranks(2, body)


INTERRUPTED = {
    "all_reduce": lambda: dist.all_reduce(np.zeros(2)),
    "async": lambda: dist.all_reduce(np.zeros(2), async_op=True).wait(),
    "persistent": lambda: dist.all_reduce_init(np.zeros(2))(),
    "recv": lambda: dist.recv(np.zeros(2), 1),
    "irecv": lambda: dist.irecv(np.zeros(2), 1).wait(),
    "send": lambda: dist.send(LARGE, 1),
}


def alarmed(call):
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    call()


@pytest.mark.parametrize("call", INTERRUPTED.values(), ids=INTERRUPTED)
def test_what_a_signals_handler_raises_stands_though_it_ended_the_call(call):
    store, is_over = dist.HashStore(), threading.Event()

    def join(rank):
        dist.init_process_group(store=store, rank=rank, world_size=2)

    def handle(*_):
        dist.group.WORLD.abort()
        raise KeyboardInterrupt

    def other():
        with use(World()):
            join(1)
            is_over.wait(HANG_LIMIT)
            dist.destroy_process_group()

    thread = threading.Thread(target=other)
    thread.start()
    before = signal.signal(signal.SIGALRM, handle)
    try:
        with use(World()):
            join(0)
            with pytest.raises(KeyboardInterrupt):
                alarmed(call)
            dist.destroy_process_group()
    finally:
        signal.signal(signal.SIGALRM, before)
        is_over.set()
        thread.join()


def test_texts_have_the_words_that_programs_look_for():
    def body(rank):
        group, short = dist.new_group(), timedelta(seconds=0.2)
        if rank == 0:
            with pytest.raises(dist.CollectiveTimeoutError, match="timed out"):
                dist.recv(np.ones(1), 1, group, timeout=short)
            with pytest.raises(dist.CollectiveTimeoutError, match="timed out"):
                dist.barrier(group, async_op=True).wait(short)
            with pytest.raises(ValueError, match="size"):
                dist.all_gather_single(np.ones(3), np.ones(1))
        dist.barrier()

    run_ranks(2, body)
