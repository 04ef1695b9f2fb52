"""Messages between ranks: matching, refusals, errors; ranks are threads."""

import asyncio
import itertools
import threading

import numpy as np
import pytest

import allhands as dist
from allhands.backends.work import WorkResult
from allhands.groups.world import current, use
from harness.ranks import LIMIT, run_ranks

OUTSIDE = dist.GroupMember.NON_GROUP_MEMBER
LARGE = 300_000  # elements: far more than a ring holds


@pytest.mark.parametrize("count", [0, 1, 1000, LARGE])
def test_send_and_recv(count):
    def body(rank):
        array = np.arange(count) * (rank + 1.0)
        if rank == 0:
            assert dist.send(array, 1) is None
            return dist.recv(array, group_src=1)
        output = np.empty(count)
        assert dist.recv(output, 0) == 0
        np.testing.assert_array_equal(output, np.arange(count))
        dist.send(array, group_dst=0)
        return None

    assert run_ranks(2, body) == [1, None]


def test_isend_and_irecv():
    def body(rank):
        mine, theirs = np.full(LARGE, rank), np.empty(LARGE, int)
        works = [dist.irecv(theirs, 1 - rank), dist.isend(mine, 1 - rank)]
        assert all(work.wait() for work in works)
        assert all(work.wait() and work.is_success() for work in works)
        assert works[0].result()[0] is theirs
        assert works[0].source_rank() == works[0]._source_rank() == 1 - rank
        with pytest.raises(RuntimeError, match="correspond to a recv"):
            works[1].source_rank()
        assert works[0].get_future().result(1) == [theirs]
        assert works[1].get_future_result().result(1) is WorkResult.SUCCESS
        return set(theirs.tolist())

    assert run_ranks(2, body) == [{1}, {0}]


@pytest.mark.parametrize("count", [3, LARGE])
def test_views_are_sent_and_filled(count):
    def body(rank):
        memory = np.zeros((count, 3))
        if rank == 0:
            memory[:, 1] = np.arange(count)
            dist.send(memory[:, 1], 1)
        else:
            dist.recv(memory[::-1, 2], 0)
            np.testing.assert_array_equal(memory[::-1, 2], np.arange(count))
            assert not memory[:, :2].any()

    run_ranks(2, body)


def test_tags_are_received_in_any_order():
    def body(rank):
        for tag in (0, 2**31 - 1, 5) if rank == 0 else (5, 0, 2**31 - 1):
            array = np.array([tag if rank == 0 else -1])
            if rank == 0:
                dist.send(array, 1, tag=tag)
            else:
                dist.recv(array, 0, tag=tag)
                assert array[0] == tag

    run_ranks(2, body)


def test_any_source_gives_the_global_rank():
    def body(rank):
        group = dist.new_group([3, 1, 2], sort_ranks=False)
        if rank == 0:
            return None
        array = np.array([rank])
        if rank != 2:
            dist.send(array, 2, group)
            return None
        found = {dist.recv(array, group=group): int(array[0])}
        work = dist.irecv(array, group=group)
        work.wait()
        found[dist.get_global_rank(group, work.source_rank())] = int(array[0])
        return found

    assert run_ranks(4, body)[2] == {1: 1, 3: 3}


def test_peers_are_global_or_group_ranks():
    def body(rank):
        group = dist.new_group([2, 1], sort_ranks=False)
        array = np.array([rank])
        if rank == 1:
            dist.send(array, dst=2, group=group)
            dist.send(array, group_dst=0, group=group)
        if rank == 2:
            assert dist.recv(array, src=1, group=group) == 1
            assert dist.recv(array, group_src=1, group=group) == 1

    run_ranks(3, body)


def test_sendrecv_goes_around_a_ring():
    def body(rank):
        mine, theirs = np.full(LARGE, rank), np.empty(LARGE, int)
        left, right = (rank - 1) % 3, (rank + 1) % 3
        assert dist.sendrecv(mine, theirs, dst=right, src=left) == left
        assert set(theirs) == {left}
        source = dist.sendrecv(
            mine, theirs, group_dst=right, tag=rank, recv_tag=left
        )  # from any
        return source

    assert run_ranks(3, body) == [2, 0, 1]


CALLS = {
    "send": lambda array, **options: dist.send(array, **options),
    "isend": lambda array, **options: dist.isend(array, **options),
    "recv": lambda array, **options: dist.recv(array, **options),
    "irecv": lambda array, **options: dist.irecv(array, **options),
}


@pytest.mark.parametrize("name", CALLS)
def test_bad_peers_and_tags_are_refused_at_once(name):
    role = "dst" if "send" in name else "src"
    word = "destination" if "send" in name else "source"

    def body(rank):
        array = np.zeros(1)
        call = CALLS[name]
        for peer in (9, 2, -1):
            for key in (role, f"group_{role}"):
                with pytest.raises(
                    ValueError,
                    match=rf"Invalid {word} rank: {peer} .*must be in \[0, 2\)",
                ):
                    call(array, **{key: peer})
        with pytest.raises(ValueError, match="Can't specify both"):
            call(array, **{role: 1 - rank, f"group_{role}": 1 - rank})
        for peer in ("1", 1.0):
            with pytest.raises(TypeError, match=f"a rank must be an int, got {peer!r}"):
                call(array, **{role: peer})
        peer = {role: 1 - rank}
        with pytest.raises(RuntimeError, match=r"Tag must be nonnegative.*got -1"):
            call(array, **peer, tag=-1)
        for tag in (2**31, np.int64(2**31), 1.0):
            with pytest.raises(TypeError, match=r"tag must be an int in"):
                call(array, **peer, tag=tag)
        with pytest.raises(TypeError, match="of an array type"):
            call([1.0], **peer)
        if role == "dst":
            with pytest.raises(ValueError, match="Must specify global_rank or group"):
                call(array)
        else:
            array.flags.writeable = False
            with pytest.raises(ValueError, match="read-only"):
                call(array, **peer)

    run_ranks(2, body)


def test_ranks_outside_the_group():
    def body(rank):
        array = np.zeros(1)
        with pytest.warns(UserWarning, match="Running recv on global rank 0"):
            assert dist.recv(array, 0, OUTSIDE) == -1
        for call in (dist.isend, dist.irecv):
            with pytest.warns(UserWarning, match=f"Running {call.__name__} on global"):
                assert call(array, 0, OUTSIDE) is None
        for call in (
            lambda: dist.send(array, 0, OUTSIDE),
            lambda: dist.sendrecv(array, array, 0, 0, OUTSIDE),
        ):
            with pytest.raises(ValueError, match="Invalid process group specified"):
                call()

    run_ranks(1, body)


@pytest.mark.parametrize("count", [0, 1, 100, 8192, 8193, 300_000])
@pytest.mark.parametrize("size", [1, 2])
def test_a_rank_sends_to_itself(size, count):
    def body(rank):
        given, got = np.arange(count) + rank, np.zeros(count, int)
        sent = dist.isend(given, rank)
        received = dist.irecv(got, rank)
        received.wait()
        sent.wait()
        np.testing.assert_array_equal(got, given)
        got[:] = 0
        works = dist.batch_isend_irecv(
            [dist.P2POp(dist.irecv, got, rank), dist.P2POp(dist.isend, given, rank)]
        )
        for work in works:
            work.wait()
        np.testing.assert_array_equal(got, given)
        got[:] = 0
        assert dist.sendrecv(given, got, dst=rank, src=rank) == rank
        np.testing.assert_array_equal(got, given)
        got[:] = 0
        received = dist.irecv(got, rank, tag=7)
        dist.send(given, rank, tag=7)  # of any size: its receive is there
        received.wait()
        np.testing.assert_array_equal(got, given)
        got[:] = 0
        sent = dist.isend(given, rank)
        assert dist.recv(got) == rank
        sent.wait()
        np.testing.assert_array_equal(got, given)

    run_ranks(size, body)


def test_a_rank_does_not_wait_for_itself():
    def body(rank):
        large, small = np.ones(5000), np.ones(4096)
        dist.send(small, rank)  # eager
        got = np.zeros(4096)
        assert dist.recv(got, rank) == rank
        assert got.sum() == 4096
        for call, word in ((dist.send, "destination"), (dist.recv, "source")):
            with pytest.raises(
                ValueError, match=rf"{word} rank should not be the same as the rank"
            ):
                call(large, rank)
        dist.send(small, rank, tag=1)
        with pytest.raises(ValueError, match="would wait for itself"):
            dist.recv(got, rank, tag=2)
        dist.recv(got, rank, tag=1)
        dist.barrier()

    run_ranks(2, body)


def test_sendrecv_with_no_rank_at_the_edge_of_a_grid():
    def body(rank):
        left = rank - 1 if rank > 0 else dist.PROC_NULL
        right = rank + 1 if rank < 2 else dist.PROC_NULL
        for key in ("", "group_"):
            mine, theirs = np.full(3, rank), np.full(3, -5)
            peers = {f"{key}dst": right, f"{key}src": left}
            assert dist.sendrecv(mine, theirs, **peers) == left
            assert theirs.tolist() == [left if rank > 0 else -5] * 3
        assert dist.sendrecv(mine, theirs, dist.PROC_NULL, dist.PROC_NULL) == (
            dist.PROC_NULL
        )
        with pytest.raises(TypeError, match="array"):
            dist.sendrecv([1], theirs, dist.PROC_NULL, dist.PROC_NULL)
        nobody = np.int64(dist.PROC_NULL)
        assert dist.sendrecv(mine, theirs, nobody, nobody) == dist.PROC_NULL
        with pytest.raises(TypeError, match="a rank must be an int, got array"):
            dist.sendrecv(mine, right, theirs, left)  # in mpi4py's order
        with pytest.raises(ValueError, match="Must specify"):
            dist.sendrecv(mine, theirs, None, left)
        with pytest.raises(ValueError, match="Invalid destination rank"):
            dist.send(mine, dist.PROC_NULL)

    run_ranks(3, body)


def test_messages_and_collectives_at_once():
    def body(rank):
        works = [dist.irecv(a := np.empty(1000), 1 - rank, tag=t) for t in range(20)]
        total = np.ones(LARGE)
        for tag in reversed(range(20)):
            dist.all_reduce(total)
            dist.send(np.full(1000, float(tag)), 1 - rank, tag=tag)
        dist.all_reduce(total)
        for work in works:
            work.wait()
        return float(total[0]), float(a[0])

    assert run_ranks(2, body) == [(2.0**21, 19.0)] * 2


def test_two_threads_of_a_rank_each_get_theirs():
    def body(rank):
        group = dist.group.WORLD

        world = current()

        def talk(tag):
            with use(world):
                exchange(tag)

        def exchange(tag):
            array = np.empty(2000, int)
            for n in range(50):
                if rank == 0:
                    dist.send(np.full(2000, n), 1, group, tag)
                    dist.recv(array, 1, group, tag)
                else:
                    dist.recv(array, 0, group, tag)
                    dist.send(array + 1, 0, group, tag)
                sums[tag] += int(array[0])

        sums = [0] * 3
        threads = [threading.Thread(target=talk, args=(tag,)) for tag in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT)
        return sums

    n = sum(range(50))
    assert run_ranks(2, body) == [[n + 50] * 3, [n] * 3]


def test_works_can_be_awaited():
    def body(rank):
        async def main():
            outputs = [np.empty(10, int) for _ in range(1000)]
            works = [
                dist.irecv(output, 1 - rank, tag=tag)
                for tag, output in enumerate(outputs)
            ]
            works += [
                dist.isend(np.full(10, tag), 1 - rank, tag=tag)
                for tag in reversed(range(1000))
            ]

            async def wait(work):
                return await work

            assert all(await asyncio.gather(*map(wait, works)))
            return [int(output[9]) for output in outputs]

        return asyncio.run(main())

    assert run_ranks(2, body) == [list(range(1000))] * 2


def test_the_callback_may_send():
    done = threading.Event()

    def body(rank):
        array = np.zeros(2)
        if rank == 0:
            dist.send(array, 1)
            dist.recv(array, 1, tag=1)
            done.set()
            return
        group = dist.group.WORLD
        work = dist.irecv(array, 0)
        work.add_done_callback(lambda: group.send([array], 0, 1))
        assert done.wait(LIMIT)

    run_ranks(2, body)


def _orders():
    """Two isends and two irecvs of rank 0, in every order, against those of others."""
    calls = ["send a", "send b", "recv a", "recv b"]
    return list(itertools.permutations(calls))


@pytest.mark.parametrize("count", [1, 5000])
@pytest.mark.parametrize("size", [2, 3])
def test_every_order_of_two_isends_and_two_irecvs(size, count):
    """All ranks in one group go through all pairs of orders; `a` and `b` are tags."""
    orders = _orders()
    if size == 2:
        programs = list(itertools.product(orders, orders))
    else:
        pick = np.random.default_rng(1)
        programs = [pick.choice(orders, 3) for _ in range(300)]

    def body(rank):
        right, left = (rank + 1) % size, (rank - 1) % size
        for number, program in enumerate(programs):
            outputs, works = {}, []
            for call in program[rank]:
                kind, tag = str(call).split()
                tag_number = "ab".index(tag)
                if kind == "send":
                    data = np.full(count, number * 10 + tag_number)
                    works.append(dist.isend(data, right, tag=tag_number))
                else:
                    outputs[tag] = np.empty(count, int)
                    works.append(dist.irecv(outputs[tag], left, tag=tag_number))
            for work in works:
                work.wait()
            for tag, output in outputs.items():
                assert output[-1] == number * 10 + "ab".index(tag)

    run_ranks(size, body)


def test_a_ring_all_reduce_of_isend_and_recv():
    """As programs write it for themselves: a tutorial's classic."""

    def all_reduce(send, recv):
        rank, size = dist.get_rank(), dist.get_world_size()
        send_buffer, recv_buffer = send.copy(), np.zeros_like(send)
        total = send.copy()
        left, right = (rank - 1) % size, (rank + 1) % size
        for i in range(size - 1):
            if i % 2 == 0:
                request = dist.isend(send_buffer, right)
                dist.recv(recv_buffer, left)
                total += recv_buffer
            else:
                request = dist.isend(recv_buffer, right)
                dist.recv(send_buffer, left)
                total += send_buffer
            request.wait()
        recv[:] = total

    def body(rank):
        output = np.empty(20_000)
        all_reduce(np.full(20_000, rank + 1.0), output)
        return float(output[-1])

    assert run_ranks(4, body) == [10.0] * 4


def test_the_methods_of_a_group_take_group_ranks():
    def body(rank):
        group = dist.new_group([1, 0], sort_ranks=False)
        array = np.array([rank])
        if rank == 0:
            group.send([array + 7], 0, 1).wait()
            group.send(array + 8, 0).wait()
            return None
        group.recv_anysource([array], 1).wait()
        assert array[0] == 7
        group.recv([array], 1, 0).wait()
        with pytest.raises(ValueError, match=r"must be in \[0, 2\)"):
            group.recv([array], 2, 0)
        return int(array[0])

    assert run_ranks(2, body)[1] == 8


def test_the_fake_backend_moves_nothing():
    def body(rank):
        array = np.full(2, 7)
        dist.send(array, 2)
        assert dist.recv(array, 2) == 2
        assert dist.recv(array) == 0
        assert dist.isend(array, 1).wait()
        assert dist.irecv(array, 1).wait()
        assert dist.sendrecv(array, array, 1, 2) == 2
        return array.tolist()

    def one(_):
        dist.init_process_group("fake", store=dist.HashStore(), rank=0, world_size=3)
        return body(0)

    assert run_ranks(1, one, init=False) == [[7, 7]]
