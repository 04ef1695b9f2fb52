"""Messages and objects where ranks die, are interrupted or end; ranks are processes."""

import signal
import time

import pytest

from allhands.store import FileStore
from harness.ctrl_c import check_ctrl_c_ends_rank_0
from harness.pace import patient
from harness.ranks import LIMIT, Processes

CALLS = {
    "recv": "dist.recv(np.zeros(3), 1, tag=1)",
    "recv from any": "dist.recv(np.zeros(3), tag=1)",
    "irecv": "dist.irecv(np.zeros(3), 1, tag=1).wait()",
    "send, small": "\n".join(["while True:", "    dist.send(np.zeros(3), 1)"]),
    "send, large": "dist.send(np.zeros(100_000), 1)",
    "isend": "dist.isend(np.zeros(100_000), 1).wait()",
    "recv_object_list": "dist.recv_object_list([0], 1)",
    "send_object_list": "dist.send_object_list([np.zeros(100_000)], 1)",
}


def indented(call):
    return call.replace("\n", "\n" + " " * 16)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_killed_peer_is_named_within_a_second(call):
    source = f"""
        dist.barrier()
        say("ready")
        if rank == 1:
            stay()
        else:
            try:
                {indented(call)}
            except dist.RankFailedError as error:
                give((time.monotonic(), error.ranks, str(error)))
    """
    with Processes(2, source) as job:
        for rank in range(2):
            assert job.read(rank) == "ready"
        time.sleep(0.2)  # into the middle of it; any moment will do
        killed = time.monotonic()
        job.ranks[1].kill()
        noticed, ranks, text = job.join(codes=[0, -signal.SIGKILL])[0]
    assert noticed - killed < patient(1, killed)
    assert ranks == [1]
    assert "rank 1" in text
    assert "died" in text


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_ctrl_c_acts_within_half_a_second(call):
    source = f"""
        dist.barrier()
        try:
            say("ready")
            if rank == 1:
                stay()
            else:
                {indented(call)}
        except KeyboardInterrupt:
            give(time.monotonic())
            raise  # so that it does not wait for what is queued
    """
    with Processes(2, source) as job:
        for rank in range(2):
            assert job.read(rank) == "ready"
        check_ctrl_c_ends_rank_0(job, -signal.SIGINT)


def test_a_message_that_no_thread_can_move_is_an_error_that_says_so():
    source = """
        import resource
        import threading

        end, text = threading.Event(), ""
        sleepers = [threading.Thread(target=end.wait) for _ in range(5)]
        for sleeper in sleepers:  # they take stacks that ended threads have left
            sleeper.start()
        dist.barrier()
        with open("/proc/self/statm") as statm:
            used = int(statm.read().split()[0]) * resource.getpagesize()
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 20), before[1]))
        try:
            dist.isend(np.zeros(5000), 0)
        except dist.DistBackendError as error:
            text = str(error)
        resource.setrlimit(resource.RLIMIT_AS, before)
        end.set()
        given, got = np.ones(5000), np.zeros(5000)
        work = dist.isend(given, 0)  # the group works on
        dist.recv(got, 0)
        work.wait()
        give((text, got.sum()))
    """
    with Processes(1, source) as job:
        [(text, total)] = job.join()
    assert "send(float64, count 5000, to rank 0, tag 0) on group" in text
    assert "starting a thread" in text
    assert "ulimit -v" in text
    assert total == 5000


def test_unmatched_messages_take_bounded_memory():
    """Of a sender that nothing stops, and of a receiver that does not receive."""
    source = """
        dist.barrier()
        before, data = resident(), np.zeros(1000)
        if rank == 0:
            sent = 0
            try:
                while True:
                    dist.send(data, 1, timeout=timedelta(seconds=1))
                    sent += 1
            except dist.CollectiveTimeoutError:
                pass
            dist.send(np.array([sent]), 1, tag=1)
            give((sent, (resident() - before) / 1e6))
        else:
            sent = np.zeros(1, int)
            dist.recv(sent, 0, tag=1)
            give((int(sent[0]), (resident() - before) / 1e6))
            for _ in range(sent[0]):
                dist.recv(data, 0)
    """
    with Processes(2, source) as job:
        (sent, grown), (_, grown_at_receiver) = job.join()
    assert 1_000 < sent < 5_000  # of 8 KB each
    assert grown < 30
    assert grown_at_receiver < 50


@pytest.mark.parametrize("count", [3, 100_000])
def test_what_was_posted_before_the_end_still_arrives(count):
    source = f"""
        if rank == 0:
            dist.isend(np.full({count}, 7), 1)
        else:
            data = np.zeros({count}, int)
            with dist.debug.faults("do=delay:1s"):
                dist.recv(data, 0)
            give(int(data.sum()))
    """
    with Processes(2, source) as job:
        assert job.join() == [None, 7 * count]


@pytest.mark.parametrize("count", [3, 100_000])
def test_the_sender_raises_where_nobody_receives(count):
    """Unless the receiver could still read it, as it can once it has used the group."""
    source = f"""
        say("ready")
        if rank == 0:
            dist.isend(np.full({count}, 7), 1)
            try:
                dist.group.WORLD.shutdown(timedelta(seconds=0.5))
            except dist.CollectiveTimeoutError as error:
                give((error.ranks, str(error)))
        else:
            stay()
    """
    with Processes(2, source) as job:
        job.ranks[0].wait(LIMIT)
        job.ranks[1].kill()
        ranks, text = job.join(codes=[0, -signal.SIGKILL])[0]
    assert ranks == [1]
    assert "messages to rank 1" in text
    assert "were not received" in text


@pytest.mark.parametrize("end", ["dist.destroy_process_group()", "os._exit(0)"])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_sender_that_never_waited_is_told_when_it_leaves(end, is_known):
    """Of a message that its receiver did not take."""
    source = f"""
        if rank == 0:
            works = [dist.isend(np.zeros(100_000), 1) for _ in range(2)]
        dist.barrier()
        if rank == 1:
            {end}
        else:
            while {is_known} and not all(work.is_completed() for work in works):
                time.sleep(0.01)
            try:
                dist.destroy_process_group()
            except dist.RankFailedError as error:
                give((error.ranks, str(error)))
    """
    with Processes(2, source) as job:
        ranks, text = job.join()[0]
    assert ranks == [1]
    assert text.startswith("send(float64, count 100000, to rank 1, tag 0) on group '0'")


def test_a_sender_that_was_told_leaves_in_peace():
    source = """
        if rank == 0:
            work = dist.isend(np.zeros(100_000), 1)
        dist.barrier()
        if rank == 0:
            try:
                work.wait()
            except dist.RankFailedError:
                dist.destroy_process_group()
                give("left")
    """
    with Processes(2, source) as job:
        assert job.join()[0] == "left"


def test_a_receiver_takes_memory_once():
    source = """
        import torch

        def status(name):
            for line in open("/proc/self/status"):
                if line.startswith(name):
                    return int(line.split()[1]) / 1e3

        def extra(make, call, num_received):
            mine = make() if rank == 0 or num_received == size else None
            dist.barrier()
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")  # what VmHWM counts from
            before = status("VmRSS")
            received = call(mine)
            taken = (status("VmHWM") - before) / (num_received * MEGABYTES)
            assert rank == 0 or len(received) == num_received
            return taken

        def all_gather(mine):
            received = [None] * size
            dist.all_gather_object(received, mine)
            return received

        def gather(mine):
            received = [None] * size if rank == 1 else None
            dist.gather_object(mine, received, 1)
            return received

        def broadcast(mine):
            dist.broadcast_object_list(objects := [mine])
            return objects

        def scatter(mine):
            parts = [None, mine] if rank == 0 else None
            dist.scatter_object_list(objects := [None], parts)
            return objects

        def send(mine):
            if rank == 0:
                dist.send_object_list([mine], 1)
                return None
            dist.recv_object_list(objects := [None], 0)
            return objects

        MEGABYTES = 40  # more than malloc ever keeps for later
        payloads = {
            "array": lambda: np.ones(MEGABYTES * 125_000),
            "tensor": lambda: torch.ones(MEGABYTES * 250_000),
            "bytes": lambda: b"x" * (MEGABYTES * 1_000_000),
        }
        calls = {all_gather: 2, gather: 2, broadcast: 1, scatter: 1, send: 1}
        for call in calls:
            call(b"")
        give([
            (name, call.__name__, extra(make, call, num_received))
            for name, make in payloads.items()
            for call, num_received in calls.items()
        ])
    """
    with Processes(2, source) as job:
        for name, call, taken in job.join()[1]:
            assert 0.9 < taken < 1.2, (name, call, taken)


@pytest.mark.parametrize("first", [1, 2])
def test_late_ranks_find_the_others_though_who_came_first_is_dead(first):
    """Here the other ranks have met, and one of them dies, before rank 0 comes."""
    source = f"""
        first = {first}
        other = 3 - first
        store = FileStore(f"{{folder}}/order", -1)
        if rank == first:
            dist.isend(np.ones(1), other)  # now it has made the group's memory
            store.set("made", "")
            say("made")
            stay()
        elif rank == other:
            store.wait(["made"])
            dist.recv(np.zeros(1), first)
            say("met")
            store.wait(["dead"])
            x = np.zeros(1)
            dist.recv(x, 0)
            give(x[0])
        else:
            store.wait(["dead"])
            dist.send(np.full(1, 7.0), other)
        try:
            dist.barrier()
        except dist.RankFailedError as error:
            assert error.ranks == [first]
        else:
            raise AssertionError("a barrier without one rank")
    """
    other = 3 - first
    codes = [0, 0, 0]
    codes[first] = -signal.SIGKILL
    with Processes(3, source) as job:
        assert job.read(first) == "made"
        assert job.read(other) == "met"
        job.ranks[first].kill()
        job.ranks[first].wait(LIMIT)
        FileStore(f"{job.folder}/order", -1).set("dead", "")
        assert job.join(codes=codes)[other] == 7
