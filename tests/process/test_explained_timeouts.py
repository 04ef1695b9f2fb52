"""What the error says of a wait that took too long: why the others did not come."""

import os
import pathlib
import platform
import re
import signal
import time

import pytest

from harness.ranks import LIMIT, Processes

SHORT = "timedelta(seconds=1)"
# However slow the machine is, who can answer does.
PATIENT = """
        from allhands.debug import explanation
        explanation._LIMIT = 60.0
"""
# Of two ranks that give up, each asks while the other does so, and goes on once both
# know why.
TOGETHER = """
        from allhands.debug import reporter
        plain = reporter.explanation
        def meet(name):
            open(f"{folder}/{name}{rank}", "w").close()
            while not os.path.exists(f"{folder}/{name}{1 - rank}"):
                time.sleep(0.01)
        def explanation_of_both(*arguments):
            meet("gives_up")
            why = plain(*arguments)
            meet("knows")
            return why
        reporter.explanation = explanation_of_both
"""


def reason(text):
    """What comes after "why"; places without their folder."""
    _, found, why = text.partition("; why")
    return re.sub(r"\([^()]*:(\d+)\)", r"(line \1)", found + why)


@pytest.mark.parametrize("hosts", [None, [0, 1]], ids=["one host", "two hosts"])
def test_a_cycle_over_two_groups_is_named_on_both_ranks(hosts):
    source = f"""
{PATIENT}
{TOGETHER}
        groups = [dist.new_group([0, 1], timeout={SHORT}) for _ in range(2)]
        dist.barrier()
        mine, other = groups if rank == 0 else groups[::-1]
        try:
            if rank == 0:
                dist.all_reduce(np.ones(2), group=mine)
            else:
                dist.barrier(group=mine)
        except dist.CollectiveTimeoutError as error:
            give(str(error))
        dist.barrier()
    """
    with Processes(2, source, hosts=hosts) as job:
        found = job.join()
    for text in found:
        assert re.fullmatch(
            r"; why: cycle of waits: rank 0 waits in all_reduce #1 on group '1' "
            r"\(line (\d+)\) for rank 1, which waits in barrier #1 on group '2' "
            r"\(line (\d+)\) for rank 0",
            reason(text),
        ), text


WAITING = f"""
{PATIENT}
        dist.barrier()
        def gives_up(group=None):
            try:
                dist.all_reduce(np.ones(2), group=group)
            except dist.CollectiveTimeoutError as error:
                give((str(error), error.ranks))
        dist.set_timeout(timedelta(seconds=1))
"""
ONE = """
        if rank == {}:
            {}()
        else:
            {}()
"""


def reasons(size, source, *never, hosts=None):
    """Those of the ranks that give up; `never` do not end by themselves."""
    with Processes(size, WAITING + source, hosts=hosts) as job:
        for rank in set(range(size)) - set(never):
            job.ranks[rank].wait(LIMIT)
        for rank in never:
            job.ranks[rank].kill()
        codes = [-signal.SIGKILL if rank in never else 0 for rank in range(size)]
        found = job.join(codes=codes)
    return [reason(text) for text, _ in filter(None, found)]


def stop_while_it_copies(pid):
    """Stop a process while it writes to the memory of another."""
    process_vm_writev = {"x86_64": "311", "aarch64": "271"}[platform.machine()]
    status = pathlib.Path(f"/proc/{pid}")
    while True:
        os.kill(pid, signal.SIGSTOP)
        while (status / "stat").read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.001)
        if (status / "syscall").read_text().split()[0] == process_vm_writev:
            return
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.001)


def test_who_waits_with_another_is_told_the_same():
    found = reasons(4, ONE.format(2, "stay", "gives_up"), 2)
    assert len(found) == 3
    assert len(set(found)) == 1
    assert re.fullmatch(r"; why: rank 2 is in its own code \(line \d+\)", found[0])


def test_so_is_who_waits_with_it_on_another_host():
    found = reasons(4, ONE.format(3, "stay", "gives_up"), 3, hosts=[0, 0, 1, 1])
    assert len(found) == 3
    assert len(set(found)) == 1
    assert re.fullmatch(r"; why: rank 3 is in its own code \(line \d+\)", found[0])


def test_for_whom_the_awaited_one_waits_in_turn():
    source = """
        pair = dist.new_group([1, 2], timeout=timedelta(seconds=100))
        if rank == 0:
            while not os.path.exists(f"{folder}/waits"):
                time.sleep(0.01)
            gives_up()
        elif rank == 1:
            open(f"{folder}/waits", "w").close()
            dist.barrier(group=pair)
        else:
            stay()
    """
    [found] = reasons(3, source, 1, 2)
    assert re.fullmatch(
        r"; why: rank 1 waits in barrier #1 on group '\d+' \(line \d+\); "
        r"rank 2 is in its own code \(line \d+\)",
        found,
    )


def test_ranks_of_a_smaller_group_are_those_of_the_world():
    source = """
        pair = dist.new_group([1, 2], timeout=timedelta(seconds=1))
        if rank == 1:
            gives_up(group=pair)
        elif rank == 2:
            stay()
    """
    [found] = reasons(3, source, 2)
    assert found.startswith("; why (ranks of the world): rank 2 is in its own code")


def test_one_that_is_stopped():
    source = """
        with dist.debug.faults("rank=1,do=stop"):
            gives_up()
    """
    [found] = reasons(2, source, 1)
    assert re.fullmatch(
        r"; why: rank 1: stopped by SIGSTOP, and not continued, after barrier #\d+ on "
        r"group '0' \(line \d+\)",
        found,
    )


def test_who_waits_by_a_future_is_told_the_same():
    source = """
        with dist.debug.faults("rank=1,do=stop"):
            work = dist.all_reduce(np.ones(2), async_op=True)
        try:
            work.get_future().then(lambda done: done.value()).wait()
        except dist.CollectiveTimeoutError as error:
            give((str(error), error.ranks))
    """
    [found] = reasons(2, source, 1)
    assert found.startswith("; why: rank 1: stopped by SIGSTOP, and not continued")


def test_one_that_is_stopped_in_the_middle_is_blamed_alone():
    """The root waits for the stopped rank, too, and so has not come to the end."""
    source = """
        array, limit = np.ones(1 << 22, np.float32), 600 if rank == 0 else 2
        arrays = [np.empty_like(array) for _ in range(size)] if rank == 0 else None
        say(os.getpid())
        try:
            while True:
                dist.gather(array, arrays, timeout=timedelta(seconds=limit))
        except dist.CollectiveTimeoutError as error:
            give((str(error), error.ranks))
    """
    with Processes(3, WAITING + source) as job:
        stop_while_it_copies(int(job.read(2)))
        for rank in (0, 1):
            job.ranks[rank].wait(LIMIT)
        job.ranks[2].kill()
        *found, _ = job.join(codes=[0, 0, -signal.SIGKILL])
    assert [ranks for _, ranks in found] == [[2], [2]]
    text, _ = found[1]
    assert "missing [2]; rank 2 was last in gather #" in text
    assert "; why: rank 2: stopped by SIGSTOP" in text


def test_one_that_cannot_answer_is_not_waited_for():
    """Its handler of SIGUSR2 is its own, and is not called."""
    source = """
        explanation._LIMIT = 0.3  # as usual: it may end, and tell then
        if rank:
            signal.signal(signal.SIGUSR2, signal.SIG_IGN)
            stay()
        gives_up()
    """
    assert reasons(2, source, 1) == [""]


def test_a_message_that_does_not_come():
    source = """
        if rank:
            stay()
        try:
            dist.recv(np.ones(2), src=1)
        except dist.CollectiveTimeoutError as error:
            give((str(error), error.ranks))
    """
    [found] = reasons(2, source, 1)
    assert re.fullmatch(r"; why: rank 1 is in its own code \(line \d+\)", found)


def test_many_that_do_not_come_are_not_asked():
    assert reasons(10, ONE.format(0, "gives_up", "stay"), *range(1, 10)) == [""]


def test_another_thread_than_the_main_one():
    source = """
        if rank:
            stay()
        thread = threading.Thread(target=gives_up)
        thread.start()
        thread.join()
    """
    [found] = reasons(2, source, 1)
    assert re.fullmatch(r"; why: rank 1 is in its own code \(line \d+\)", found)


def test_a_cycle_of_works_that_are_waited_for():
    source = """
        groups = [dist.new_group([0, 1], timeout=timedelta(seconds=1)) for _ in "ab"]
        mine = groups[rank]
        try:
            if rank == 0:
                dist.all_reduce(np.ones(2), group=mine, async_op=True).wait()
            else:
                dist.irecv(np.ones(2), src=0, group=mine).wait()
        except dist.CollectiveTimeoutError as error:
            give((str(error), error.ranks))
        dist.barrier(timeout=timedelta(seconds=100))
    """
    found = reasons(2, TOGETHER + source)
    assert len(found) == 2
    for text in found:
        assert re.match(
            r"; why: cycle of waits: rank 0 waits in all_reduce #1 on group '1' "
            r"\(line \d+\) for rank 1, which waits in recv\(.*\) on group '2' "
            r"\(line \d+\) for rank 0",
            text,
        ), text


def test_who_looks_for_a_moment_asks_nobody():
    source = """
        if rank:
            told = signal.getsignal(signal.SIGUSR2)
            signal.signal(signal.SIGUSR2, lambda *_: give("asked"))
        dist.barrier()
        if rank == 0:
            try:
                dist.recv(np.ones(2), src=1, timeout=timedelta(seconds=0.05))
            except dist.CollectiveTimeoutError as error:
                give((str(error), error.ranks))
        dist.barrier(timeout=timedelta(seconds=100))
    """
    assert reasons(2, source) == [""]


@pytest.mark.parametrize(
    ("failing", "why"),
    [
        ("_reporter._memory.write = fail", "rank 1 is in its own code"),
        ("explanation = fail", "unknown, for looking failed: OSError('no memory')"),
        (
            "_reporter._show = lambda told: 'why' in told['error'] and fail()",
            "rank 1 is in its own code",
        ),
    ],
)
def test_what_fails_as_the_reason_is_looked_for_loses_no_record(tmp_path, failing, why):
    source = f"""
        os.environ["ALLHANDS_DUMPS"] = {str(tmp_path)!r}
        def fail(*_):
            raise OSError("no memory")
        if rank:
            stay()
        from allhands.debug import reporter
        reporter.{failing}
        gives_up()
    """
    [found] = reasons(2, source, 1)
    assert found.startswith(f"; why: {why}")
    assert found.count("why") == 1
    assert (tmp_path / "rank_0.json").exists()


def test_what_a_rank_that_is_gone_has_found():
    source = f"""
{PATIENT}
        import select
        from allhands.debug import reporter
        plain = reporter.explanation
        def explanation_after_the_end_of_rank_1(*arguments):
            rank_1 = os.pidfd_open(int(open(f"{{folder}}/pid").read()))
            select.select([rank_1], [], [])
            return plain(*arguments)

        if rank == 1:
            with open(f"{{folder}}/pid", "w") as file:
                file.write(str(os.getpid()))
        dist.barrier()
        dist.set_timeout({SHORT})
        if rank == 0:
            reporter.explanation = explanation_after_the_end_of_rank_1
            try:
                dist.recv(np.ones(1), 1)
            except dist.CollectiveTimeoutError as error:
                give(str(error))
        elif rank == 1:
            dist.recv(np.ones(1), 2)
        else:
            stay()
    """
    with Processes(3, source) as job:
        job.ranks[0].wait(LIMIT)
        job.ranks[2].kill()
        found, _, _ = job.join(codes=[0, 1, -signal.SIGKILL])
    assert re.fullmatch(
        r"; why: rank 1 gave up waiting, too; rank 2 is in its own code \(line \d+\)",
        reason(found),
    )


def test_a_row_of_more_ranks_than_one_asks():
    """Each waits for the one before it, and asks that one only."""
    source = """
        from allhands.debug import reporter
        explanation._MOST, explanation._EARLIER = 1, 10**12
        reporter._LEAST_PAUSE = 1000.0
        if rank == 0:
            stay()
        while rank > 1 and not os.path.exists(f"{folder}/result{rank - 1}"):
            time.sleep(0.01)
        try:
            dist.recv(np.ones(1), rank - 1)
        except dist.CollectiveTimeoutError as error:
            give((str(error), error.ranks))
        if rank < size - 1:
            stay()
    """
    for found in reasons(4, source, 0, 1, 2):
        assert re.search(r"rank 0 is in its own code \(line \d+\)$", found)


def test_who_made_the_shared_memory_and_does_not_answer():
    source = f"""
{PATIENT}
        dist.barrier()
        pair = dist.new_group([0, 1], timeout={SHORT})
        if rank == 0:
            dist.isend(np.ones(1), 1, group=pair)  # this makes the memory
            say(os.getpid())
            stay()
        while not os.path.exists(f"{{folder}}/stopped"):
            time.sleep(0.01)
        try:
            dist.barrier(group=pair)
        except dist.CollectiveTimeoutError as error:
            give((str(error), error.ranks))
    """
    with Processes(2, source) as job:
        pid = int(job.read(0))
        os.kill(pid, signal.SIGSTOP)
        pathlib.Path(job.folder, "stopped").touch()
        job.ranks[1].wait(LIMIT)
        job.ranks[0].kill()
        _, (text, ranks) = job.join(codes=[-signal.SIGKILL, 0])
    assert ranks == [0]
    assert f"for rank 0 (pid {pid}), which made the group's shared memory" in text
    assert "; why: rank 0: stopped by SIGSTOP, and not continued" in text


def test_who_waits_for_a_groups_memory_is_not_to_blame():
    source = """
        group = dist.new_group([0, 1, 2], timeout=timedelta(seconds=3))
        dist.barrier()

        def segments():
            return open("/proc/self/maps").read().count("/memfd:allhands-")

        def await_file(name):
            while not os.path.exists(f"{folder}/{name}"):
                time.sleep(0.01)

        def await_stop(pid):
            while open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "T":
                time.sleep(0.01)

        def barrier(**limit):
            try:
                dist.barrier(group=group, **limit)
            except dist.CollectiveTimeoutError as error:
                give((str(error), error.ranks))

        before = segments()
        if rank == 1:
            await_file("pid")
            await_stop(int(open(f"{folder}/pid").read()))
            barrier(timeout=timedelta(seconds=8))  # it is there when rank 2 gives up
        else:
            if rank == 2:
                await_file("made")
            thread = threading.Thread(target=barrier)
            thread.start()
            while segments() == before:
                time.sleep(0.01)
            if rank == 0:
                open(f"{folder}/made", "w").close()
                await_file("got")
                open(f"{folder}/draft", "w").write(str(os.getpid()))
                os.rename(f"{folder}/draft", f"{folder}/pid")
                os.kill(os.getpid(), signal.SIGSTOP)
            open(f"{folder}/got", "w").close()
            thread.join()
    """
    with Processes(3, source) as job:
        for rank in (1, 2):
            job.ranks[rank].wait(LIMIT)
        job.ranks[0].kill()
        _, *found = job.join(codes=[-signal.SIGKILL, 0, 0])
    assert [ranks for _, ranks in found] == [[0], [0]], found
