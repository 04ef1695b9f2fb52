"""A job of several nodes: one launcher for each, which meet, and end together."""

import json
import signal
import socket
import subprocess
import sys
import time

import pytest

from harness.explained import explained
from harness.launcher import environment, launch, program, wait_until
from harness.nodes import launched_nodes, run_nodes
from harness.pace import patient
from harness.ports import reserved_port
from harness.ranks import LIMIT

MEET = """
    import json, os, signal, sys, time
    import allhands as dist
    env = os.environ
    store, rank, size = next(dist.rendezvous("env://"))
    store.set(f"came{rank}", env["TORCHELASTIC_RESTART_COUNT"])
    store.wait([f"came{other}" for other in range(size)])
"""
# In short sleeps: Python notices a signal that comes just before a sleep at its end.
STAY = """
    print("under way", flush=True)
    while True:
        time.sleep(0.05)
"""


def test_ranks_are_numbered_by_node(tmp_path):
    text = MEET + '    print(json.dumps({"seen": rank, **env}))\n'
    options = [["--role=a"], ["--role=b"], ["--role=a"]]
    path = program(tmp_path, text)
    ended = run_nodes([2, 1, 3], "--rdzv-id=job7", path, options=options)
    assert [(end.code, end.stderr) for end in ended] == [(0, "")] * 3
    rows = {}
    for node, end in enumerate(ended):
        for line in end.stdout.splitlines():
            prefix, _, text = line.partition(" ")
            row = json.loads(text)
            rows[row["seen"]] = (node, row)
            assert prefix == f"[rank{row['seen']}]"
    assert [rows[rank][0] for rank in range(6)] == [0, 0, 1, 2, 2, 2]
    names = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE")
    assert [[rows[rank][1][name] for name in names] for rank in range(6)] == [
        ["0", "0", "2", "0", "5"],
        ["1", "1", "2", "1", "5"],
        ["2", "0", "1", "0", "1"],
        ["3", "0", "3", "2", "5"],
        ["4", "1", "3", "3", "5"],
        ["5", "2", "3", "4", "5"],
    ]
    for node, row in rows.values():
        assert (row["GROUP_RANK"], row["GROUP_WORLD_SIZE"]) == (str(node), "3")
        assert row["WORLD_SIZE"] == "6"
        assert row["TORCHELASTIC_RUN_ID"] == "job7"
        assert row["MASTER_ADDR"] == "127.0.0.1"
        store, _, rest = row["ALLHANDS_STORE"].rpartition("@")
        assert store.startswith("127.0.0.1:")
        master_port, *relay = rest.split("/")
        assert len(relay) == (0 if node == 0 else 2)
        assert row["MASTER_PORT"] == master_port != store.rpartition(":")[2]
        assert "ALLHANDS_SECRET" not in row
    assert len({row["MASTER_PORT"] for _, row in rows.values()}) == 1


def test_all_have_the_users_secret(tmp_path):
    path = program(tmp_path, MEET + '    print(env["ALLHANDS_SECRET"])\n')
    ended = run_nodes([1, 1], path, ALLHANDS_SECRET="mine")
    assert [end.stdout for end in ended] == ["[rank0] mine\n", "[rank1] mine\n"]


def test_a_failure_is_told_on_every_node(tmp_path):
    text = """
    if rank == 2:
        raise ValueError("bad value 17")
    """
    ended = run_nodes([1, 2], program(tmp_path, MEET + text + STAY))
    assert [end.code for end in ended] == [1, 1]
    for end in ended:
        assert "allhands run: rank 2 failed: ValueError: bad value 17" in end.stderr
        assert f"at {tmp_path}/train.py:10, in <module>" in end.stderr
        assert "(node 1), pid " in end.stderr
    assert ended[0].stderr.endswith("1 rank of this node stopped because of it\n")
    assert ended[1].stderr.endswith("1 other stopped because of rank 2\n")


def test_a_rank_that_only_followed_is_not_blamed(tmp_path):
    """Rank 0 tells of rank 1 before the launcher of rank 1 does."""
    text = """
    if rank == 0:
        store.set("pid", str(os.getpid()))
        raise dist.RankFailedError("all_reduce #1: rank 1 is gone")
    if rank == 1:
        process = f"/proc/{int(store.get('pid'))}"
        while os.path.exists(process):
            time.sleep(0.01)
        sys.exit(7)
    """
    ended = run_nodes([1, 1], program(tmp_path, MEET + text))
    assert [end.code for end in ended] == [7, 7]
    for end in ended:
        assert "allhands run: rank 1 failed: exit code 7" in end.stderr
    line = "  of this node, 1 failed too: rank 0 (RankFailedError)\n"
    assert ended[0].stderr.endswith(line)


@pytest.mark.parametrize("node", [0, 1])
def test_a_node_whose_ranks_all_only_followed_ends_the_others(tmp_path, node):
    text = f"""
    if rank == {node}:
        raise dist.RankFailedError("all_reduce #1: rank 7 is gone")
    """
    path = program(tmp_path, MEET + text + STAY)
    ended = run_nodes([1, 1], "--max-restarts=1", path)
    assert [end.code for end in ended] == [1, 1]
    for end in ended:
        assert end.stderr.count("restart 1 of 1") == 1
        assert end.stderr.count(f"rank {node} failed: RankFailedError: ") == 2


def test_a_node_whose_ranks_end_while_asked_for_records_ends_the_others(tmp_path):
    """Rank 2 ends instead of writing the record that its launcher asks for."""
    text = """
    from allhands.elastic.record_memory import RecordMemory
    if rank == 2:
        signal.signal(signal.SIGUSR2, lambda *_: os._exit(0))
        memory = RecordMemory()
        store.set("answers", "")
    if rank == 1:
        store.wait(["answers"])
        sys.exit(7)
    """
    path = program(tmp_path, MEET + text + STAY)
    options = [[], [f"--dumps={tmp_path}/records"]]
    ended = run_nodes([1, 2], path, options=options)
    assert [end.code for end in ended] == [7, 7]
    for end in ended:
        assert "rank 1 failed: exit code 7" in end.stderr


@pytest.mark.parametrize("node", [0, 1])
def test_ctrl_c_on_one_node_ends_all(tmp_path, node):
    path = program(tmp_path, MEET + STAY)
    with launched_nodes([1, 2], path) as job:
        job.read_until(0, "under way")
        job.read_until(1, "under way")
        job.nodes[node].send_signal(signal.SIGINT)
        ended = job.end()
    assert [end.code for end in ended] == [130, 130]
    assert ended[node].stderr.endswith("allhands run: ended by SIGINT\n")
    line = f"allhands run: ended by SIGINT to the launcher of node {node} (host "
    assert line in ended[1 - node].stderr
    explained("ended by SIGINT to the launcher", ended[1 - node].stderr)
    assert all("KeyboardInterrupt" in end.stderr for end in ended)


def test_a_second_ctrl_c_kills_on_all_nodes(tmp_path):
    text = """
    signal.signal(signal.SIGINT, lambda *_: print("deaf", flush=True))
    print("under way", flush=True)
    while True:
        time.sleep(0.05)
    """
    with launched_nodes([1, 1], program(tmp_path, MEET + text)) as job:
        for node in range(2):
            job.read_until(node, "under way")
        job.nodes[0].send_signal(signal.SIGINT)
        for node in range(2):
            job.read_until(node, "deaf")
        time.sleep(0.3)  # two that come at once are one
        job.nodes[0].send_signal(signal.SIGINT)
        ended = job.end()
    assert [end.code for end in ended] == [130, 130]


def test_after_ctrl_c_there_is_no_other_attempt(tmp_path):
    """Node 1 waits for node 0, whose rank does not stop because rank 1 has failed."""
    text = """
    if rank == 1:
        store.wait(["deaf"])
        sys.exit(7)
    signal.signal(signal.SIGTERM, lambda *_: print("deaf", flush=True))
    store.set("deaf", "")
    while True:
        time.sleep(0.05)
    """
    path = program(tmp_path, MEET + text)
    options = ["--max-restarts=1", f"--shutdown-timeout={LIMIT}"]
    with launched_nodes([1, 1], *options, path) as job:
        job.read_until(0, "deaf")
        job.nodes[1].send_signal(signal.SIGINT)
        time.sleep(0.5)  # two that come at once are one
        job.nodes[1].send_signal(signal.SIGINT)
        ended = job.end()
    assert [end.code for end in ended] == [7, 7]
    assert all("all ranks start again" not in end.stderr for end in ended)


@pytest.mark.parametrize("node", [0, 1])
def test_a_killed_launcher_ends_the_job(tmp_path, node):
    with launched_nodes([2, 1], program(tmp_path, MEET + STAY)) as job:
        for other in range(2):
            job.read_until(other, "under way")
        job.nodes[node].kill()
        killed = time.monotonic()
        end = job.end_of(1 - node)
        assert time.monotonic() - killed < patient(5, killed)
    assert end.code == 1
    reason = (
        "its launcher closed the connection; was it killed?",
        "its launcher ended without a word; was it killed?",
    )[node]
    ranks = ("0, 1", "2")[node]
    explained(reason, end.stderr)
    assert f"allhands run: node {node} (host " in end.stderr
    assert f") is lost: {reason}\n  with rank {ranks}\n" in end.stderr
    assert "of this node stopped because of it\n" in end.stderr


@pytest.mark.parametrize("node", [0, 1])
def test_a_silent_launcher_ends_the_job(tmp_path, node):
    path = program(tmp_path, MEET + STAY)
    with launched_nodes([1, 1], path, ALLHANDS_HEARTBEAT="3") as job:
        for other in range(2):
            job.read_until(other, "under way")
        job.nodes[node].send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        end = job.end_of(1 - node)
        assert time.monotonic() - stopped < 6 + patient(6, stopped)
    assert end.code == 1
    assert f"allhands run: node {node} (host " in end.stderr
    explained(("has not answered for", "has heard nothing of it for")[node], end.stderr)


def test_restarts_begin_the_ranks_of_all_nodes_again(tmp_path):
    text = """
    if rank == 1 and env["TORCHELASTIC_RESTART_COUNT"] == "0":
        raise ValueError("once")
    print("attempt", env["TORCHELASTIC_RESTART_COUNT"])
    store.set(f"end{rank}", "")
    store.wait([f"end{other}" for other in range(size)])
    print("done", env["TORCHELASTIC_RESTART_COUNT"])
    """
    path = program(tmp_path, MEET + text)
    ended = run_nodes([1, 2], "--max-restarts=1", path)
    assert [end.code for end in ended] == [0, 0]
    done = [end.stdout.count("done 1") for end in ended]
    assert done == [1, 2]
    assert all("done 0" not in end.stdout for end in ended)
    line = "rank 1 failed: ValueError: once; all ranks start again (restart 1 of 1)\n"
    assert all(end.stderr.endswith(line) for end in ended)


def test_restarts_run_out_on_all_nodes(tmp_path):
    path = program(tmp_path, MEET + "    sys.exit(4 if rank == 1 else 0)\n")
    ended = run_nodes([1, 1], "--max-restarts=1", path)
    assert [end.code for end in ended] == [4, 4]
    for end in ended:
        assert end.stderr.count("rank 1 failed: exit code 4") == 2
        assert end.stderr.count("restart 1 of 1") == 1


def test_node_0_serves_the_store_to_the_end(tmp_path):
    text = """
    if rank == 0:
        store.set("pid", str(os.getpid()))
        store.wait(["seen"])
        sys.exit()
    process = f"/proc/{int(store.get('pid'))}"
    store.set("seen", "")
    while os.path.exists(process):
        time.sleep(0.01)
    store.set("still there", "")
    """
    ended = run_nodes([1, 1], program(tmp_path, MEET + text))
    assert [(end.code, end.stderr) for end in ended] == [(0, "")] * 2


def test_nodes_that_do_not_come_are_named(tmp_path):
    path = program(tmp_path, "print('no')")
    conf = "--rdzv-conf=timeout=1"
    with launched_nodes([1, 1, 1], conf, path) as job:
        job.nodes[1].kill()
        job.nodes[2].kill()
        end = job.end_of(0)
    assert (end.code, end.stdout) == (1, "")
    assert "node 0 has waited 1 s for node 1, 2 of 3, which did not come" in end.stderr
    explained("s for node ... of ..., which did not come", end.stderr)
    assert "--nnodes 3 --node-rank 1 ...` started there" in end.stderr
    assert "firewall" in end.stderr
    with launched_nodes([1, 1], conf, path) as job:
        job.nodes[0].kill()
        end = job.end_of(1)
    assert (end.code, end.stdout) == (1, "")
    assert "node 1 has waited 1 s for node 0 at 127.0.0.1, port " in end.stderr
    explained("Connection refused", end.stderr)


def test_nodes_of_different_jobs_are_refused_on_all(tmp_path):
    path = program(tmp_path, "print('no')")
    ended = run_nodes([1, 1], path, options=[[], ["--max-restarts=3"]])
    assert [(end.code, end.stdout) for end in ended] == [(1, ""), (1, "")]
    for end in ended:
        assert "started with different --max-restarts: 0 on node 0 (host" in end.stderr
        assert "3 on node 1 (host" in end.stderr
        explained("started with different --max-restarts", end.stderr)


def test_two_launchers_of_one_node_are_refused(tmp_path):
    path = program(tmp_path, MEET)
    options = [[], [], ["--node-rank=1"]]
    with launched_nodes([1, 1, 1], path, options=options) as job:
        one, other = job.nodes[1:]
        wait_until(lambda: {one.poll(), other.poll()} != {None}, 60, "a refusal")
        end = job.end_of(1 if other.poll() is None else 2)
    assert end.code == 1
    assert "two launchers say that they are node 1: pid " in end.stderr
    explained("two launchers say", end.stderr)
    assert f"{one.pid}" in end.stderr
    assert f"{other.pid}" in end.stderr


def test_a_launcher_that_comes_late_is_refused(tmp_path):
    path = program(tmp_path, MEET + STAY)
    options = [["--nnodes=2"], ["--nnodes=2"], []]
    with launched_nodes([1, 1, 1], path, options=options) as job:
        end = job.end_of(2)
    assert end.code == 1
    assert "has begun with 2 nodes, and this launcher is none of them" in end.stderr
    explained("has begun with ... nodes", end.stderr)


def test_ctrl_c_while_waiting_for_others(tmp_path):
    path = program(tmp_path, "print('no')")
    with launched_nodes([1, 1], path, ALLHANDS_PATIENCE="0.2") as job:
        job.nodes[1].kill()
        line = job.nodes[0].stderr.readline()
        assert "node 0 has waited 0 s (limit 600 s) for node 1 of 2, which" in line
        explained("(limit ... s)", line)
        job.nodes[0].send_signal(signal.SIGINT)
        end = job.end_of(0)
    assert end.code == 130
    assert end.stderr.splitlines()[-1].endswith("allhands.run: ended by SIGINT")


@pytest.mark.parametrize(
    ("secrets", "told"),
    [
        (["one", ""], "asks for the job's secret, and this process has none"),
        (["", "one"], "has no secret, and this process has one"),
        (["one", "other"], "has another secret than this process"),
    ],
)
def test_a_node_with_another_secret_is_refused(tmp_path, secrets, told):
    text = """
        import os, sys
        from allhands import run
        os.environ["ALLHANDS_SECRET"] = sys.argv.pop(1)
        sys.exit(run.main())
    """
    program(tmp_path, text, "launcher.py")
    with reserved_port() as port:
        nodes = [
            subprocess.Popen(
                [
                    *(sys.executable, str(tmp_path / "launcher.py"), secret),
                    *("--nnodes=2", f"--node-rank={node}", "--master-addr=127.0.0.1"),
                    *(f"--master-port={port}", "--no-python", "true"),
                ],
                env=environment(),
                stderr=subprocess.PIPE,
                text=True,
            )
            for node, secret in enumerate(secrets)
        ]
        try:
            _, stderr = nodes[1].communicate(timeout=LIMIT)
        finally:
            for node in nodes:
                node.kill()
                node.communicate(timeout=LIMIT)
    assert nodes[1].returncode == 1
    explained(told, stderr)


def test_node_0_where_its_address_or_port_is_not_free(tmp_path):
    path = program(tmp_path, "print('no')")
    done = launch("--nnodes=2", "--master-addr=192.0.2.1", path)
    assert (done.returncode, done.stdout) == (1, "")
    explained("Cannot assign requested address", done.stderr)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        options = ["--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={port}"]
        done = launch(*options, path)
    assert (done.returncode, done.stdout) == (1, "")
    explained("address already in use", done.stderr)


@pytest.mark.parametrize("node", [0, 1])
def test_a_node_that_cannot_start_its_ranks_ends_the_job(tmp_path, node):
    path = program(tmp_path, "import time; time.sleep(999)")
    options = [[], []]
    options[node] = ["--redirects=3", "--log-dir=/proc/nowhere"]
    ended = run_nodes([1, 1], path, options=options)
    assert [ended[node].code, ended[1 - node].code] == [2, 1]
    told = "--log-dir is '/proc/nowhere': no file can be made there: No such file or"
    assert told in ended[node].stderr
    line = f"allhands run: node {node} (host "
    assert line in ended[1 - node].stderr
    assert f") gave up: {told}" in ended[1 - node].stderr
