"""Programs that start ranks: jobs of several nodes, leftovers, secrets, signals."""

import json
import signal
import subprocess
import sys

import pytest

from harness.elastic_programs import run, written
from harness.launcher import environment, read_until
from harness.ports import reserved_port
from harness.ranks import LIMIT

NODES = """
    path = sys.argv[2]
    specs = dict(
        min_nodes=2, max_nodes=2, rdzv_backend="static", rdzv_endpoint=sys.argv[3],
        rdzv_configs={"rank": int(sys.argv[1]), "timeout": 60},
    )
    try:
        print("results", elastic_launch(config(2, **specs), work)(path))
    except Exception as error:
        print("raised", type(error).__name__, str(error).splitlines()[1])
"""


@pytest.mark.parametrize("fails", [False, True])
def test_several_nodes(tmp_path, fails):
    path = written(
        tmp_path,
        """
        def work(fails):
            rank = int(os.environ["RANK"])
            if fails == "True" and rank == 3:
                raise ValueError("here")
            if fails == "True":
                signal.pause()
            return 10 * rank
        """,
        NODES,
    )
    with reserved_port() as port:
        nodes = [
            subprocess.Popen(
                [sys.executable, path, str(node), str(fails), f"127.0.0.1:{port}"],
                env=environment(ALLHANDS_HOST_ID=f"host{node}", ALLHANDS_SECRET="s"),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for node in range(2)
        ]
        ends = [node.communicate(timeout=LIMIT)[0] for node in nodes]
    if not fails:
        assert ends == ["results {0: 0, 1: 10}\n", "results {2: 20, 3: 30}\n"]
        return
    line = "allhands run: rank 3 failed: ValueError: here"
    assert ends == [
        f"raised DistBackendError {line}\n",
        f"raised ChildFailedError {line}\n",
    ]


def test_nothing_is_left_of_a_job_whose_program_is_killed(tmp_path):
    path = written(
        tmp_path,
        """
        def work():
            print("pid", os.getpid())
            signal.pause()
        """,
        "elastic_launch(config(2), work)()",
    )
    process = subprocess.Popen(
        [sys.executable, path], env=environment(), stdout=subprocess.PIPE, text=True
    )
    try:
        read_until(process, 2, "pid")
    finally:
        process.send_signal(signal.SIGKILL)
    # The pipe ends once no rank holds it, nor the guard.
    out, _ = process.communicate(timeout=LIMIT)
    assert out == ""


def test_each_job_has_a_secret_of_its_own(tmp_path):
    done = run(
        tmp_path,
        """
        def secret():
            return os.environ["ALLHANDS_SECRET"]
        """,
        """
        before = dict(os.environ)
        jobs = [elastic_launch(config(2), secret)() for _ in range(2)]
        assert dict(os.environ) == before
        os.environ["ALLHANDS_SECRET"] = "mine"
        given = elastic_launch(config(1), secret)()
        print(json.dumps([[*job.values()] for job in (*jobs, given)]))
        """,
    )
    assert done.returncode == 0, done.stderr
    (first, same), (second, _), [given] = json.loads(done.stdout)
    assert first == same != second
    assert given == "mine"


# The second job begins while the first one's secret is there, and outlives it.
def test_a_job_keeps_its_secret_when_another_one_ends(tmp_path):
    done = run(
        tmp_path,
        """
        import time
        import allhands as dist

        def wait_for(name):
            while not os.path.exists(name):
                time.sleep(0.01)

        def first(folder):
            wait_for(f"{folder}/second runs")

        def second(folder):
            open(f"{folder}/second runs", "w").close()
            wait_for(f"{folder}/first has ended")
            assert os.environ["TORCHELASTIC_RESTART_COUNT"] == "1"
            dist.init_process_group()
            return len(os.environ["ALLHANDS_SECRET"])
        """,
        f"""
        folder = {str(tmp_path)!r}
        jobs = [
            threading.Thread(target=lambda: elastic_launch(config(1), first)(folder)),
            threading.Thread(target=lambda: print(elastic_launch(
                config(2, max_restarts=1), second)(folder))),
        ]
        jobs[0].start()
        while "ALLHANDS_SECRET" not in os.environ:
            time.sleep(0.001)
        jobs[1].start()
        jobs[0].join()
        open(folder + "/first has ended", "w").close()
        jobs[1].join()
        """,
    )
    assert done.returncode == 0, done.stderr
    assert "{0: 64, 1: 64}" in done.stdout, done.stderr


def test_signals_role_and_gpus_are_those_of_the_configuration(tmp_path):
    done = run(
        tmp_path,
        """
        def told():
            names = "ROLE_NAME", "LOCAL_RANK", "CUDA_VISIBLE_DEVICES"
            return [os.environ[name] for name in names]

        def signalled(launcher):
            os.kill(launcher, signal.SIGUSR1)
            signal.pause()
        """,
        """
        os.environ["CUDA_VISIBLE_DEVICES"] = "4,5"
        given = config(2, role="trainer", virtual_local_rank=True)
        print(json.dumps(list(elastic_launch(given, told)().values())))
        try:
            given = config(1, signals_to_handle="SIGUSR1")
            elastic_launch(given, signalled)(os.getpid())
        except SignalException as error:
            print(error.sigval.name)
        """,
    )
    told, name = done.stdout.splitlines()
    assert json.loads(told) == [["trainer", "0", "4"], ["trainer", "0", "5"]]
    assert name == "SIGUSR1"
