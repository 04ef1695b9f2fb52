"""The tools that look into a job see the groups of torch.distributed on this engine."""

import json
import re
import subprocess
import sys
import time

import pytest

from harness.debug_page import Page
from harness.ranks import LIMIT
from harness.torch_jobs import TorchJob

torch = pytest.importorskip("torch")

WAITING = """
init("allhands")
part = dist.new_group([1, 2], group_desc="pair")
for _ in range(5):
    dist.all_reduce(torch.ones(10))
if rank > 0:
    for _ in range(3):
        dist.broadcast(torch.ones(4), 1, group=part)
if rank == 2:
    with open(f"{folder}/ready", "w"):
        pass
    while not os.path.exists(f"{folder}/go"):
        time.sleep(0.01)
dist.barrier()  # for rank 2
give(None)
dist.destroy_process_group()
"""


def allhands(*arguments):
    told = subprocess.run(
        [sys.executable, "-m", "allhands", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    return told.returncode, told.stdout, told.stderr


def wait_until(is_so):
    end = time.monotonic() + LIMIT
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


def line_of(source, text):
    """The line of the program that has `text`, counted from the source's first."""
    lines = source.splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_a_running_job_is_seen(tmp_path):
    with TorchJob(tmp_path, 3, WAITING) as job:
        pids = [process.pid for process in job.ranks]
        wait_until((tmp_path / "ready").exists)

        def looked():
            code, out, error = allhands("top", pids[0], "--once", "--json")
            return json.loads(out)["ranks"] if code == 0 else error

        def states():
            ranks = looked()
            return isinstance(ranks, list) and [each["state"] for each in ranks]

        wait_until(lambda: states() == ["waits", "waits", "computes"])
        ranks = looked()
        assert [each["pid"] for each in ranks] == pids
        assert [each["num_operations"] for each in ranks] == [5 + 1, 5 + 3 + 1, 5 + 3]
        assert [each["num_bytes"] for each in ranks] == [200, 248, 248]
        assert ranks[0]["waits_for"] == ranks[1]["waits_for"] == [2]

        _, verdict, _ = allhands("debug", pids[1], "--least-wait", 0)
        program = (tmp_path / "program.py").read_text()
        line = line_of(program, "# for rank 2")
        assert re.search(r"rank 2\b.*program\.py:\d+", verdict.splitlines()[0]), verdict
        assert f"program.py:{line}" in verdict
        (tmp_path / "go").touch()
        job.join()


def test_the_record_has_torchs_groups(tmp_path):
    source = """
    import allhands
    init("allhands")
    part = dist.new_group([1, 2], group_desc="pair")
    dist.all_reduce(torch.ones(10))
    if rank > 0:
        dist.broadcast(torch.ones(4, dtype=torch.float16), 1, group=part)
        pair = part.split_group([1, 0], group_desc="turned")
        pair.barrier().wait()
    told = allhands.debug.dump()
    give([told["rank"], told["world_size"], told["pg_config"],
          [[e["process_group"][1], e["op"], e["count"], e["dtype"], e["state"]]
           for e in told["entries"]]])
    dist.barrier()
    if rank > 0:
        pair.shutdown()
    dist.destroy_process_group()
    assert allhands.debug.dump()["pg_config"] == {}
    """
    with TorchJob(tmp_path, 3, source) as job:
        given = job.join()
    for rank, (told_rank, world_size, groups, entries) in enumerate(given):
        assert (told_rank, world_size) == (rank, 3)
        ranks = {each["desc"]: json.loads(each["ranks"]) for each in groups.values()}
        pairs = {"pair": [1, 2], "turned": [2, 1]} if rank > 0 else {}
        assert ranks == {"default_pg": [0, 1, 2], **pairs}
        assert ["default_pg", "all_reduce", 10, "float32", "completed"] in entries
        if rank > 0:
            assert ["pair", "broadcast", 4, "float16", "completed"] in entries
            assert ["turned", "barrier", 0, "uint8", "completed"] in entries


def test_an_error_says_why_others_did_not_come(tmp_path):
    source = """
    from allhands.debug import explanation
    explanation._LIMIT = 60.0  # however slow the machine is
    init("allhands")
    first = dist.new_group([0, 1], timeout=timedelta(seconds=1))
    second = dist.new_group([0, 1], timeout=timedelta(seconds=1))
    dist.barrier()
    try:
        if rank == 0:
            dist.all_reduce(torch.ones(2), group=first)
        else:
            dist.barrier(group=second)
    except RuntimeError as error:
        give(str(error))
    dist.barrier()
    """
    with TorchJob(tmp_path, 2, source) as job:
        for text in job.join():
            assert re.search(
                r"; why: cycle of waits: rank 0 waits in all_reduce #1 on group \S+ "
                r"\(\S+program\.py:\d+\) for rank 1, which waits in barrier #1 on "
                r"group \S+ \(\S+program\.py:\d+\) for rank 0$",
                text,
            ), text


def test_a_trace_has_operations_of_all_groups(tmp_path, monkeypatch):
    monkeypatch.setenv("ALLHANDS_TRACE", str(tmp_path / "trace"))
    (tmp_path / "go").touch()
    with TorchJob(tmp_path, 3, WAITING) as job:
        job.join()
    code, out, error = allhands("trace", tmp_path / "trace", "-o", tmp_path / "t.json")
    assert code == 0, error
    assert "3 ranks" in out
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    names = [each["name"] for each in events if each.get("cat") == "collective"]
    assert sum(name.startswith("all_reduce") for name in names) == 3 * 5
    assert sum(name.startswith("broadcast") for name in names) == 2 * 3


def test_the_debug_page_of_a_torch_program(tmp_path):
    source = f"""
    import allhands
    init("allhands")
    url = allhands.debug.start_debug_server(0)
    assert (url is None) == (rank > 0)
    if rank == 0:
        with open(f"{{folder}}/url", "w") as file:
            file.write(url)
        os.rename(f"{{folder}}/url", f"{{folder}}/page")
    {WAITING.partition('init("allhands")')[2].replace(chr(10), chr(10) + "    ")}
    """
    with TorchJob(tmp_path, 3, source) as job:
        wait_until((tmp_path / "page").exists)
        wait_until((tmp_path / "ready").exists)
        page = Page((tmp_path / "page").read_text())
        told = page.ask("/job").json()
        assert "rank 2" in json.dumps(told)
        record = page.ask("/record").json()
        assert "pair" in json.dumps(record)
        (tmp_path / "go").touch()
        job.join()


def test_a_world_after_another_is_seen_and_a_program_keeps_its_handler(tmp_path):
    source = """
    import allhands, signal
    mine = lambda number, frame: None
    if rank == 1:
        signal.signal(signal.SIGUSR2, mine)
    seen = []
    for number in range(2):
        init("allhands", number)
        dist.all_reduce(torch.ones(3 + number))
        told = allhands.debug.dump()
        seen.append([each["count"] for each in told["entries"]])
        dist.destroy_process_group()
    handler = signal.getsignal(signal.SIGUSR2)
    give([seen, handler is mine])
    """
    with TorchJob(tmp_path, 2, source) as job:
        given = job.join()
    assert given == [[[[3], [4]], False], [[[3], [4]], True]]


def test_a_forked_child_has_none_of_its_parents_groups(tmp_path):
    source = """
    import allhands
    init("allhands")
    dist.all_reduce(torch.ones(3))
    pid = os.fork()
    if pid == 0:
        told = allhands.debug.dump()
        os._exit(len(told["entries"]) + len(told["pg_config"]))
    give(os.waitpid(pid, 0)[1])
    dist.barrier()
    """
    with TorchJob(tmp_path, 2, source) as job:
        assert job.join() == [0, 0]
