"""Receives that tell what came, and probes; ranks are threads."""

import threading
from contextvars import copy_context
from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from harness.ranks import Processes, outcomes, run_ranks

LARGE = 300_000  # elements of float64: by a single copy, or in pieces
SIZES = [0, 1, 3, 100, 5_000, LARGE]
SOON = timedelta(milliseconds=50)


def message(source, number, size):
    return np.arange(size) + 1000.0 * number + 100.0 * source


def received(array, status):
    """What came in `array`; the rest of it is as it was."""
    count = status.count(array.dtype)
    assert (array[count:] == -1).all()
    return array[:count]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_messages_are_taken_in_the_order_of_each_source(size, seed):
    """Against a model: a receive gets the oldest message that it fits."""
    rng = np.random.default_rng([size, seed])
    plans = [  # by source: tags and sizes
        [(int(rng.integers(3)), int(rng.choice(SIZES[:5]))) for _ in range(12)]
        for _ in range(size)
    ]

    def body(rank):
        plan = plans[rank]
        works = [
            dist.isend(message(rank, number, n), 0, tag=tag)
            for number, (tag, n) in enumerate(plan)
        ]
        if rank == 0:
            receive_all(plans, np.random.default_rng(seed))
        for work in works:
            work.wait()
        assert dist.iprobe() is None
        dist.barrier()  # who has left would end that

    run_ranks(size, body)


def receive_all(plans, rng):
    left = [
        [(number, tag, n) for number, (tag, n) in enumerate(plan)] for plan in plans
    ]
    while any(left):
        source = int(rng.choice([src for src, plan in enumerate(left) if plan]))
        _, tag, _ = left[source][int(rng.integers(len(left[source])))]
        src, tag = [(source, tag), (source, dist.ANY_TAG), (None, dist.ANY_TAG)][
            int(rng.integers(3))
        ]
        seen = dist.probe(src, tag=tag) if rng.integers(2) else None
        status, array = dist.Status(), np.full(6_000, -1.0)
        if seen is not None:
            src, tag = seen.source, seen.tag
        if rng.integers(2):
            assert dist.recv(array, src, tag=tag, status=status) == status.source
        else:
            dist.irecv(array, src, tag=tag, status=status).wait()
        plan = left[status.source]
        expected = next(m for m in plan if tag in (m[1], dist.ANY_TAG))
        plan.remove(expected)
        number, its_tag, n = expected
        assert (status.tag, status.num_bytes) == (its_tag, 8 * n)
        assert seen is None or seen.num_bytes == 8 * n
        assert np.array_equal(
            received(array, status), message(status.source, number, n)
        )


@pytest.mark.parametrize("is_posted_first", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_a_larger_array_keeps_what_is_behind_the_message(size, is_posted_first):
    def body(rank):
        if rank == 1:
            if is_posted_first:
                dist.barrier()
            work = dist.isend(message(1, 0, size), 0, tag=5)
            if not is_posted_first:
                dist.barrier()
            work.wait()
            return
        whole, status = np.full(LARGE + 7, -1.0), dist.Status()
        if not is_posted_first:
            dist.barrier()
        work = dist.irecv(whole, tag=dist.ANY_TAG, status=status)
        if is_posted_first:
            dist.barrier()
        work.wait()
        assert (status.source, status.tag, work.source_rank()) == (1, 5, 1)
        assert np.array_equal(received(whole, status), message(1, 0, size))

    run_ranks(2, body)


@pytest.mark.parametrize("size", SIZES[1:])
def test_strided_arrays(size):
    def body(rank):
        if rank:
            return dist.send(message(1, 0, 2 * size)[::2], 0)
        wide = np.full((size + 3, 2), -1.0)
        status = dist.Status()
        dist.recv(wide[:, 1], 1, status=status)
        assert np.array_equal(
            received(wide[:, 1], status), message(1, 0, 2 * size)[::2]
        )
        assert (wide[:, 0] == -1).all()
        return None

    run_ranks(2, body)


@pytest.mark.parametrize("size", [4, LARGE])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_what_does_not_fit_is_an_error_on_both_sides(size, dtype):
    """Longer, or of another dtype."""

    def body(rank):
        if rank:
            work = dist.isend(np.ones(size), 0)
            dist.barrier()
            work.wait()
            dist.recv(np.ones(1), 0)
        else:
            dist.barrier()
            dist.recv(np.zeros(size - 1, dtype), 1, status=dist.Status())

    for error in outcomes(2, body):
        assert isinstance(error, dist.CollectiveMismatchError)
        assert f"float64, count {size}" in str(error) or size == 4


def test_what_the_package_sends_itself_is_no_message_of_any_tag():
    def body(rank):
        if rank == 1:
            dist.send_object_list(["object"], 0)
            dist.send(np.full(1, 7.0), 0, tag=2**31 - 1)
        dist.barrier()
        if rank == 0:
            status, here = dist.Status(), np.empty(1)
            assert (dist.probe().tag, dist.iprobe(1).tag) == (2**31 - 1,) * 2
            dist.recv(here, tag=dist.ANY_TAG, status=status)
            assert (status.tag, here[0]) == (2**31 - 1, 7)
            assert dist.iprobe() is None
            objects = [None]
            assert dist.recv_object_list(objects) == 1
            assert objects == ["object"]
        dist.barrier()

    run_ranks(2, body)


def test_messages_of_batches_have_tags_too():
    def body(rank):
        arrays = [np.full(1, 10.0 * rank + i) for i in range(3)]
        ops = [dist.P2POp(dist.isend, x, 0, tag=i) for i, x in enumerate(arrays)]
        with dist._coalescing_manager():
            dist.isend(np.full(1, 10.0 * rank + 3), 0, tag=3)
        works = dist.batch_isend_irecv(ops)
        if rank == 0:
            found = []
            for _ in range(8):
                status, here = dist.Status(), np.empty(2)
                dist.recv(here, tag=dist.ANY_TAG, status=status)
                found.append((status.source, status.tag))
                assert here[0] == 10 * status.source + status.tag
            assert sorted(found) == [(r, t) for r in range(2) for t in range(4)]
        for work in works:
            work.wait()

    run_ranks(2, body)


def test_a_probe_leaves_the_message_and_a_posted_receive_takes_it():
    def body(rank):
        if rank:
            dist.send(np.ones(2), 0, tag=1)
            dist.barrier()
            dist.send(np.ones(3), 0, tag=2)
            return
        for _ in range(3):
            assert repr(dist.probe(1)) == "Status(source=1, tag=1, num_bytes=16)"
        assert dist.iprobe(tag=2) is None
        posted = dist.irecv(np.empty(2), 1, tag=1)
        assert dist.iprobe() is None
        posted.wait()
        dist.barrier()
        assert dist.probe(tag=2).count(np.float64) == 3
        dist.recv(np.empty(3), tag=2)

    run_ranks(2, body)


def test_a_probe_waits_for_a_large_message():
    def body(rank):
        if rank:
            dist.recv(np.empty(1), 0)
            return dist.send(message(1, 0, LARGE), 0)
        work = dist.isend(np.ones(1), 1)
        status = dist.probe(1, tag=0)
        here = np.empty(status.count("f8"))
        dist.recv(here, status.source, tag=status.tag)
        work.wait()
        assert np.array_equal(here, message(1, 0, LARGE))
        return None

    run_ranks(2, body)


def test_several_threads_probe_and_receive():
    """Each message is received once, whoever has seen it."""
    total, num_threads = 200, 4

    def body(rank):
        if rank:
            for number in range(total):
                dist.send(np.full(1, float(number)), 0, tag=number % 7)
            for _ in range(num_threads):
                dist.send(np.full(1, -1.0), 0, tag=99)
                dist.recv(np.empty(1), 0)
            return None
        found = [[] for _ in range(num_threads)]

        def work(mine):
            while True:
                dist.probe()
                status, here = dist.Status(), np.empty(3)
                dist.recv(here, tag=dist.ANY_TAG, status=status)
                if status.tag == 99:
                    return dist.send(here[:1], 1)
                assert here[0] % 7 == status.tag
                mine.append(here[0])

        threads = [  # a rank of these tests is known by its thread's context
            threading.Thread(target=copy_context().run, args=(work, mine))
            for mine in found
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(mine == sorted(mine) for mine in found)
        return sorted(number for mine in found for number in mine)

    assert run_ranks(2, body)[0] == list(range(total))


def test_a_probe_whose_time_is_over_leaves_the_group_whole():
    def body(rank):
        text = r"probe\(from rank 1, any tag\) on group '0'.* timed out"
        if rank == 0:
            with pytest.raises(dist.CollectiveTimeoutError, match=text):
                dist.probe(1, timeout=SOON)
            with pytest.raises(dist.CollectiveTimeoutError, match="any rank, tag 3"):
                dist.probe(tag=3, timeout=SOON)
            with pytest.raises(dist.CollectiveTimeoutError, match="any tag"):
                dist.recv(
                    np.empty(1), tag=dist.ANY_TAG, status=dist.Status(), timeout=SOON
                )
        dist.barrier()
        if rank:
            dist.send(np.ones(1), 0, tag=3)
        else:
            assert dist.probe().tag == 3
            dist.recv(np.ones(1), 1, tag=3)

    run_ranks(2, body)


def test_who_left_ends_probes():
    def body(rank):
        group = dist.new_group()
        dist.barrier(group)
        if rank:
            dist.send(np.ones(1), 0, group, tag=4)
            dist.destroy_process_group(group)
            return
        assert dist.probe(1, group).tag == 4
        dist.recv(np.ones(1), 1, group, tag=4)
        for look in (dist.probe, endless_iprobe):
            for source in (1, None):
                with pytest.raises(dist.RankFailedError, match="died or left") as info:
                    look(source, group)
                assert info.value.ranks == [1]

    run_ranks(2, body)


def endless_iprobe(source, group):
    while dist.iprobe(source, group) is None:
        pass


def test_a_peer_that_dies_ends_probes():
    source = """
    dist.barrier()
    if rank:
        stay()
    thread = threading.Thread(target=lambda: (until_it_waits(threading.main_thread()),
                                              say("waits")))
    thread.start()
    try:
        dist.probe(1)
    except dist.RankFailedError as error:
        give((error.ranks, "probe(from rank 1, any tag)" in str(error)))
    """
    with Processes(2, source) as job:
        assert job.read(0) == "waits"
        job.ranks[1].kill()
        results = job.join(codes=[0, -9])
    assert results[0] == ([1], True)


def test_messages_to_oneself():
    def body(rank):
        with pytest.raises(ValueError, match=r"probe\(from rank 0, any tag\).*itself"):
            dist.probe(0)
        assert dist.iprobe(0) is None
        status, here = dist.Status(), np.full(4, -1.0)
        with pytest.raises(ValueError, match="itself"):
            dist.recv(here, 0, tag=dist.ANY_TAG, status=status)
        work = dist.isend(np.ones(3), 0, tag=8)
        assert (dist.probe(0).tag, dist.iprobe().source) == (8, 0)
        dist.recv(here, 0, tag=dist.ANY_TAG, status=status)
        work.wait()
        return status.tag, here.tolist()

    assert run_ranks(1, body) == [(8, [1, 1, 1, -1])]


def test_ranks_of_a_status_are_of_the_world():
    def body(rank):
        odd = dist.new_group([1, 3])
        if rank == 1:
            dist.send(np.ones(1), 3, odd)
        if rank == 3:
            status = dist.probe(group=odd)
            again = dist.Status()
            dist.recv(np.empty(1), group=odd, status=again)
            assert dist.iprobe(group_src=1, group=odd) is None
            return status.source, again.source
        return None

    assert run_ranks(4, body) == [None, None, None, (1, 1)]


def test_a_status_of_nothing():
    def body(rank):
        status = dist.Status()
        assert repr(status) == "Status()"
        with pytest.raises(RuntimeError, match="no recv or irecv was given"):
            _ = status.source
        work = dist.irecv(np.empty(9, np.int16), rank, tag=1, status=status)
        for name in ("source", "tag", "num_bytes"):
            with pytest.raises(RuntimeError, match="nothing has come yet"):
                getattr(status, name)
        assert repr(status) == "Status()"
        dist.send(np.ones(7, np.int16), rank, tag=1)
        work.wait()
        assert [status.count(kind) for kind in (np.int16, "i2", np.dtype("i1"))] == [
            7,
            7,
            14,
        ]
        text = "14 bytes has no whole number of .*float32.*, 4 bytes each"
        with pytest.raises(ValueError, match=text):
            status.count(np.float32)
        with pytest.raises(RuntimeError, match="of a receive or probe"):
            dist.all_reduce(np.ones(1), async_op=True).envelope()

    run_ranks(1, body)


def test_tags_that_are_refused():
    def body(rank):
        x = np.ones(1)
        calls = [
            lambda: dist.recv(x, rank, tag=dist.ANY_TAG),
            lambda: dist.irecv(x, rank, tag=dist.ANY_TAG),
            lambda: dist.send(x, rank, tag=dist.ANY_TAG),
            lambda: dist.sendrecv(x, x, rank, rank, recv_tag=dist.ANY_TAG),
        ]
        for call in calls:
            with pytest.raises(ValueError, match="tag=ANY_TAG is for recv and irecv"):
                call()
        for call in (dist.probe, dist.iprobe):
            with pytest.raises(RuntimeError, match=r"in \[0, 2\*\*31\), got -1"):
                call(tag=-1)
            with pytest.raises(ValueError, match="this rank is not in it"):
                call(group=dist.GroupMember.NON_GROUP_MEMBER)
        outside = dist.GroupMember.NON_GROUP_MEMBER
        status = dist.Status()
        with pytest.warns(UserWarning, match="Running recv on"):
            assert dist.recv(x, 0, outside, status=status) == -1
        with pytest.warns(UserWarning, match="Running irecv on"):
            assert dist.irecv(x, 0, outside, status=status) is None
        assert repr(status) == "Status()"

    run_ranks(1, body)


@pytest.mark.parametrize("wrong", [dist.Status, True])
def test_what_is_no_status_takes_no_message(wrong):
    def body(rank):
        here = np.zeros(1)
        for call in (dist.recv, dist.irecv):
            with pytest.raises(TypeError, match=r"recv: status is .* pass Status\(\)"):
                call(here, 0, status=wrong)
        if rank == 0:
            dist.send(np.ones(1), 1)
        else:
            dist.recv(here, 0)
            assert here == 1

    run_ranks(2, body)


def test_a_status_whose_message_another_thread_reads_meanwhile():
    class Contended(dist.Status):
        """Whose operation is there when it is looked for, and then no more."""

        _looks = 0

        @property
        def _work(self):
            self._looks += 1
            return self._operation if self._looks % 2 else None

        @_work.setter
        def _work(self, work):
            self._operation = work

    def body(rank):
        status, sent = Contended(), dist.isend(np.ones(3), rank, tag=4)
        work = dist.irecv(np.empty(3), rank, tag=4, status=status)
        assert work.wait()
        assert sent.wait()
        assert (status.tag, status.source, status.num_bytes) == (4, rank, 24)

    run_ranks(1, body)
