"""The debug page of ranks that are processes, in a browser, too."""

import os
import re
import signal

import pytest
from prometheus_client.parser import text_string_to_metric_families

from allhands.debug.dumps import ELSEWHERE, ENDED
from allhands.elastic.records import HALTED, NO_ANSWER
from harness.chromium import WHY_NOT, chromium, dom_of
from harness.debug_page import Page
from harness.launcher import (
    environment,
    launch,
    launched,
    program,
    read_until,
    wait_until,
)
from harness.ranks import Processes

STUCK = """
    import itertools
    say(os.getpid())
    dist.barrier()
    if rank == 0:
        say(dist.debug.start_debug_server(port=0, fetch_timeout=1))
    say("begun")
    if rank == 1:
        while True:
            time.sleep(0.01)
    if rank == 2:
        all(itertools.repeat(True))  # lets no signal through
    try:
        dist.all_reduce(np.ones(1000))
    except dist.RankFailedError:  # of rank 4
        stay()
"""


def until(page, path, is_so, what):
    """What is at this path, once it is as it should be."""
    found = []

    def look():
        found.append(page.ask(path).json())
        return is_so(found[-1])

    wait_until(look, 30, what)
    return found[-1]


def by_rank(told):
    return {each["rank"]: each for each in told["ranks"]}


def silent_in(facts):
    return {each["ranks"]: each["why"] for each in facts["silent"]}


def test_it_comes_whatever_ranks_are_in_and_says_who_does_not_answer():
    """Rank 1 is in its own code, 2 in native code, 3 is stopped, 4 dies."""
    with Processes(5, STUCK) as job:
        pids = [int(job.read(rank)) for rank in range(5)]
        page = Page(job.read(0))
        assert [job.read(rank) for rank in range(5)] == ["begun"] * 5
        os.kill(pids[3], signal.SIGSTOP)

        def is_told(facts):
            silent = silent_in(facts)
            return (
                silent.keys() == {"rank 2", "rank 3"}
                and silent["rank 2"].startswith(NO_ANSWER)
                and silent["rank 3"].startswith(HALTED)
            )

        facts = until(page, "/job", is_told, "who does not answer")
        assert list(by_rank(facts)) == [0, 1, 4]
        for rank, told in by_rank(facts).items():
            assert told["pid"] == pids[rank]
            [main] = [each for each in told["threads"] if each["is_main"]]
            assert main["frames"]

        def is_seen(told):
            states = [each["state"] for each in told["ranks"]]
            waiting = ["waits", "computes", "computes", "stopped", "waits"]
            return states == waiting

        live = until(page, "/live", is_seen, "what the ranks do")
        first = by_rank(live)[0]
        assert {1, 2} <= set(first["waits_for"])
        assert first["operation"]["op"] == "all_reduce"

        os.kill(pids[4], signal.SIGKILL)
        until(
            page, "/job", lambda told: silent_in(told).get("rank 4") == ENDED, "an end"
        )
        live = page.ask("/live").json()
        states = [each["state"] for each in live["ranks"]]
        assert (states[3:], by_rank(live)[4]["pid"]) == (["stopped", "dead"], pids[4])


LIFE = """
    import socket
    from urllib.parse import urlsplit

    def held():
        links = []
        for name in os.listdir("/proc/self/fd"):
            try:
                links.append(os.readlink(f"/proc/self/fd/{name}"))
            except FileNotFoundError:
                pass  # what listed them
        return sum(link.startswith("socket:") for link in links), len(links)

    def is_served(address):
        try:
            socket.create_connection(address).close()
        except ConnectionRefusedError:
            return False
        return True

    before, threads = held(), threading.active_count()
    url = dist.debug.start_debug_server(port=0)
    address = urlsplit(url).hostname, urlsplit(url).port
    client = socket.create_connection(address)
    client.sendall(b"GET")
    while threading.active_count() != threads + 2:
        time.sleep(0.001)
    while_served = held()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        client.close()
        told = held()
        try:
            other = dist.debug.start_debug_server(port=0)
        except ValueError as error:
            other = str(error)
        os.write(writing, pickle.dumps((told, threading.active_count(), other)))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        forked = pickle.load(file)
    os.waitpid(child, 0)
    is_there = is_served(address)
    dist.destroy_process_group()
    is_after = is_served(address)
    client.close()
    while threading.active_count() != threads:
        time.sleep(0.001)
    give((before, while_served, forked, held(), is_there, is_after))
"""


def test_it_ends_with_the_world_and_is_not_in_forked_children():
    with Processes(1, LIFE) as job:
        [(before, while_served, forked, after, is_there, is_after)] = job.join()
    # The one who listens, a client, and its other end.
    assert while_served == (before[0] + 3, before[1] + 3)
    (sockets, _), threads, other = forked
    assert (sockets, threads) == (before[0], 1)
    assert "has not been initialized" in other
    assert (is_there, is_after) == (True, False)
    assert after[0] <= before[0]
    assert after[1] <= before[1]


AT_EXIT = """
    import atexit

    @atexit.register
    def tell():  # after the page's own end, and before that of the world
        give([each.name for each in threading.enumerate() if "page" in each.name])

    dist.debug.start_debug_server(port=0)
    dist.barrier()
"""


def test_it_ends_with_the_process():
    with Processes(2, AT_EXIT) as job:
        assert job.join() == [[], []]
        assert job.stderr == ["", ""]


WAITS = """
    import os, sys, time
    import allhands as dist

    dist.init_process_group()
    dist.barrier()
    while not os.path.exists(f"{sys.argv[1]}/go"):
        time.sleep(0.01)
    dist.barrier()
"""


@pytest.mark.parametrize("token", ["", "given.0123456789-abcdef"])
def test_the_setting_has_it_served_and_says_where(tmp_path, token):
    path = program(tmp_path, WAITS)
    variables = {"ALLHANDS_DEBUG_SERVER": "0", "ALLHANDS_DEBUG_TOKEN": token}
    with launched("--nproc-per-node=2", path, str(tmp_path), **variables) as job:
        line = read_until(job, 1, "debug page of ")[-1]
        assert "debug page of ranks 0, 1: http://127.0.0.1:" in line
        [url] = re.findall(r"http://\S+", line)
        assert ("#" in url) == (not token)
        page = Page(url)
        assert page.ask("/job", token=token or None).json()["size"] == 2
        (tmp_path / "go").touch()
        rest = job.communicate()[0]
    assert job.returncode == 0, rest
    assert "page" not in rest


def test_a_page_that_cannot_be_served_ends_no_job(tmp_path):
    path = program(tmp_path, "import allhands as dist; dist.init_process_group()")
    with Processes(1, "say(dist.debug.start_debug_server(port=0)); stay()") as other:
        port = Page(other.read(0)).address[1]
        done = launch(path, env=environment(ALLHANDS_DEBUG_SERVER=str(port)))
    assert done.returncode == 0
    assert (
        "rank 0 serves no debug page: ALLHANDS_DEBUG_SERVER: the debug page cannot be "
        f"served at 127.0.0.1, port {port}: Address already in use; "
    ) in done.stderr
    own = {"ALLHANDS_DEBUG_SERVER": "0", "ALLHANDS_DEBUG_TOKEN": "hidden"}
    done = launch(path, env=environment(**own))
    assert done.returncode == 0
    assert "token must be 16 to 256" in done.stderr
    assert "hidden" not in done.stderr


HOSTS = """
    if rank == 2:
        say(dist.debug.start_debug_server(port=0))
    else:
        give(dist.debug.start_debug_server(port=0) is None)
    dist.barrier()
    stay()
"""


def test_each_host_shows_its_own_ranks():
    with Processes(4, HOSTS, hosts=[0, 0, 1, 1]) as job:
        facts = Page(job.read(2)).ask("/job").json()
    assert list(by_rank(facts)) == [2, 3]
    assert silent_in(facts) == {"ranks 0, 1": ELSEWHERE}
    assert facts["verdict"] is None


SLOW = """
    if rank == 0:
        say(dist.debug.start_debug_server(port=0, fetch_timeout=60))
    gradient = np.ones(100_000, np.float32)
    while True:
        if rank == 1:
            time.sleep(0.02)  # a slow disk, a hot CPU, a larger batch
        dist.all_reduce(gradient)
"""


def is_slow(facts):
    return facts["verdict"] and facts["verdict"]["kind"] == "straggler"


def is_seen_late(told):
    awaited = [each["awaited"] for each in told["ranks"]]
    return awaited[1] > max(0.5, awaited[0], awaited[2])


def test_who_is_slow_is_in_all_that_there_is():
    with Processes(3, SLOW) as job:
        page = Page(job.read(0))
        facts = until(page, "/job", is_slow, "rank 1 is slow")
        until(page, "/live", is_seen_late, "rank 1 is late")
        text = page.ask("/metrics").body.decode()
    assert facts["verdict"]["ranks"] == [1]
    [figures] = facts["stats"]
    assert figures[:3] == ["0", "default_pg", "all_reduce"]
    assert figures[-1].startswith("rank 1: ")
    waits = [e for e in facts["timeline"]["traceEvents"] if e.get("cat") == "wait"]
    assert {each["pid"] for each in waits if each["args"]["rank"] == 1} == {0, 2}
    [calls] = [
        sample
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "allhands_calls"
    ]
    assert calls.labels == {"group": "0", "desc": "default_pg", "op": "all_reduce"}
    assert calls.value > 20


def part_of(dom, name):
    """The text of a section of the page."""
    section = re.search(rf'<section id="{name}">(.*?)</section>', dom, re.DOTALL)[1]
    return re.sub(r"<[^>]*>", " ", section)


VERDICT = '<p class="bad">rank 1 is slow: last in '


def dom_with(url, text):
    """The page as HTML, once it has this; the browser may keep a rank from its CPU."""
    found = []

    def look():
        found.append(dom_of(url))
        return 'data-asked="yes"' in found[-1] and text in found[-1]

    wait_until(look, 30, f"the page has {text}")
    return found[-1]


@pytest.mark.skipif(chromium() is None, reason=WHY_NOT)
def test_a_browser_shows_who_is_slow():
    with Processes(3, SLOW) as job:
        url = job.read(0)
        until(Page(url), "/job", is_slow, "rank 1 is slow")
        dom, without = dom_with(url, VERDICT), dom_of(url.partition("#")[0])
    assert Page(url).token not in dom
    rows = re.findall(r'<tr data-rank="(\d)"><td[^>]*>\d</td><td>[^<]+</td>', dom)
    assert rows == ["0", "1", "2"]
    assert re.search(r"all_reduce .* rank 1: \d+", part_of(dom, "stats"), re.DOTALL)
    bars = re.findall(
        r'<rect [^>]*class="\w+" data-rank="(\d)" data-name="([^"]*)"', dom
    )
    assert {rank for rank, name in bars if name == "wait for rank 1"} == {"0", "2"}
    drawn = [rank for rank, name in bars if name == "all_reduce"]
    assert min(drawn.count(rank) for rank in "012") > 20
    assert "MainThread, the main thread" in part_of(dom, "stacks")
    assert "all_reduce(float32, count 100000, SUM)" in part_of(dom, "recorder")
    assert "ranks 0-2" in part_of(dom, "groups")
    assert '<p id="problem" role="alert" hidden="">' in dom
    assert "this page needs its token" in without
    assert "rank 1" not in without


LOST = """
    from allhands.debug.page.job_view import JobView

    rows, num_looks = JobView.rows, 0

    def rows_but_the_first(view):
        global num_looks
        num_looks += 1
        if num_looks == 1:
            raise OSError("a moment's loss")
        return rows(view)

    JobView.rows = rows_but_the_first
    if rank == 0:
        url = dist.debug.start_debug_server(port=0)
    dist.barrier()
    if rank == 1:
        stay()
    say(url)
    stay()
"""


@pytest.mark.skipif(chromium() is None, reason=WHY_NOT)
def test_a_browser_goes_on_after_a_moments_loss_and_shows_who_is_dead():
    with Processes(2, LOST) as job:
        url = job.read(0)
        job.ranks[1].kill()
        job.ranks[1].wait()
        dom = dom_of(url)
    assert '<p id="problem" role="alert" hidden="">' in dom
    assert 'data-live="yes"' in dom
    [row] = re.findall(r'<tr data-rank="1" class="bad">(.*?)</tr>', dom)
    assert "<td>dead</td>" in row
