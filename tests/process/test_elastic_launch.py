"""Programs that start ranks: results, exceptions, and what they leave behind."""

import json
import subprocess
import sys
import textwrap

from harness.elastic_programs import HEAD, run, written
from harness.launcher import environment, program, read_until
from harness.ranks import LIMIT


def test_results_come_by_rank(tmp_path):
    done = run(
        tmp_path,
        """
        import numpy as np
        import allhands as dist

        def add(x, y):
            dist.init_process_group()
            ranks = np.array([dist.get_rank()])
            dist.all_reduce(ranks)
            print("called", sys.argv[1:])
            return {"sum": x + y, "rank": os.environ["RANK"], "ranks": int(ranks[0])}
        """,
        """
        results = elastic_launch(config(3), add)(20, np.float32(1.5))
        print(json.dumps([results[rank] for rank in (0, 1, 2)], default=float))
        """,
    )
    assert (done.returncode, done.stderr) == (0, "")
    *called, results = done.stdout.splitlines()
    assert sorted(called) == [f"[rank{n}] called ['an argument']" for n in range(3)]
    assert json.loads(results) == [
        {"sum": 21.5, "rank": str(rank), "ranks": 3} for rank in range(3)
    ]


def test_a_failure_is_raised_and_tells_the_cause(tmp_path):
    done = run(
        tmp_path,
        """
        import allhands as dist

        def work(unlucky):
            dist.init_process_group()
            if dist.get_rank() == unlucky:
                raise ValueError(f"bad value {unlucky + 15}")
            dist.barrier()
        """,
        """
        try:
            elastic_launch(config(3), work)(2)
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            print(rank, failure.exitcode, failure.local_rank, failure.signal_name())
            print(failure.message["message"])
            print("ValueError: bad value 17" in str(failure.message["extraInfo"]))
            print(error.name, error)
        """,
    )
    assert done.returncode == 0
    assert "allhands run:" not in done.stderr  # that is for whoever catches the error
    out = [line for line in done.stdout.splitlines() if not line.startswith("[rank")]
    assert out[:3] == ["2 1 2 <N/A>", "ValueError: bad value 17", "True"]
    assert out[3] == "work work FAILED"
    assert out[4] == "allhands run: rank 2 failed: ValueError: bad value 17"
    assert out[5].startswith("  at ")
    assert "train.py:" in out[5]
    assert 'in work: raise ValueError(f"bad value' in out[5]


def test_an_error_that_nobody_catches_ends_the_program(tmp_path):
    done = run(
        tmp_path,
        "def work(): os.kill(os.getpid(), signal.SIGKILL)",
        "elastic_launch(config(1), work)()",
    )
    assert done.returncode == 1
    assert "ChildFailedError: work FAILED" in done.stderr
    assert "allhands run: rank 0 failed: killed by SIGKILL" in done.stderr


def test_programs_are_entry_points_too(tmp_path):
    other = program(
        tmp_path,
        "import os, sys; print(os.environ['RANK'], sys.argv[1:]); sys.exit(3 * "
        "(sys.argv[1:] == ['fail', '5']))",
        "other.py",
    )
    done = run(
        tmp_path,
        "",
        f"""
        print(elastic_launch(config(2), {other!r})("ok", 4))
        print(elastic_launch(config(1), "/bin/echo")("hi"))
        try:
            elastic_launch(config(1), {other!r})("fail", 5)
        except ChildFailedError as error:
            print({{r: f.exitcode for r, f in error.failures.items()}})
        for program in "/no/such/program", "/no/such/program.py":
            try:
                elastic_launch(config(1), program)()
            except FileNotFoundError as error:
                print(error.filename)
        """,
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert sorted(lines[:2]) == [f"[rank{n}] {n} ['ok', '4']" for n in range(2)]
    assert lines[2:] == [
        "{0: None, 1: None}",
        "[rank0] hi",
        "{0: None}",
        "[rank0] 0 ['fail', '5']",
        "{0: 3}",
        "/no/such/program",
        "/no/such/program.py",
    ]


def test_what_cannot_be_pickled_is_said(tmp_path):
    done = run(
        tmp_path,
        "def odd(): return lambda: 1",
        """
        try:
            elastic_launch(config(1), lambda: 1)()
        except ValueError as error:
            print("call:", error)
        try:
            elastic_launch(config(2), odd)()
        except ChildFailedError as error:
            print("result:", error.get_first_failure()[1].message["message"])
        """,
    )
    call, result = done.stdout.splitlines()
    assert call.startswith(
        "call: elastic_launch cannot pass <lambda> and its arguments"
    )
    assert "Define the function at the top level of a module" in call
    assert result.startswith("result: TypeError: odd returned a function, which cannot")


def test_a_module_that_is_run_by_its_name_is_found(tmp_path):
    (tmp_path / "package").mkdir()
    text = """
        if __name__ == "__main__":
            print(elastic_launch(config(1), work)())
    """
    own = "def work(): return __name__, sys.argv[1:]\n"
    body = textwrap.dedent(HEAD) + own + textwrap.dedent(text)
    program(tmp_path / "package", body, "module.py")
    done = subprocess.run(
        [sys.executable, "-m", "package.module", "a"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "{0: ('__mp_main__', ['a'])}\n"


def test_a_function_of_an_interactive_session_is_refused():
    text = textwrap.dedent(HEAD) + "def work(): pass\nelastic_launch(config(1), work)()"
    done = subprocess.run(
        [sys.executable, "-c", text],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 1
    assert "cannot pass work to new processes: it is defined in an inter" in done.stderr


def test_multiprocessing_is_left_as_it_was(tmp_path):
    """Neither the program nor a rank has settled how it starts processes."""
    done = run(
        tmp_path,
        """
        import multiprocessing

        def choose(method):
            multiprocessing.set_start_method(method)  # raises if it is settled
            return multiprocessing.get_start_method()
        """,
        """
        print(elastic_launch(config(1), choose)("forkserver"), choose("spawn"))
        """,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "{0: 'forkserver'} spawn\n"


def test_a_call_without_a_guard_is_refused(tmp_path):
    path = program(
        tmp_path,
        textwrap.dedent(HEAD)
        + "def work(): pass\nelastic_launch(config(1), work)()\nprint('not here')",
    )
    done = subprocess.run(
        [sys.executable, path],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert 'Put the call below if __name__ == "__main__":' in done.stderr


def test_results_are_those_of_the_last_attempt(tmp_path):
    """Also on a rank that returned in the first one, and does not in the second."""
    done = run(
        tmp_path,
        """
        def work(folder):
            rank = os.environ["RANK"]
            attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
            if (rank, attempt) == ("1", "0"):
                while not os.path.exists(f"{folder}/returned"):
                    pass
                raise ValueError("once")
            if (rank, attempt) == ("2", "1"):
                sys.exit(0)
            if rank == "2":  # its result is written before its atexit functions run
                import atexit
                atexit.register(lambda: open(f"{folder}/returned", "w"))
            return attempt
        """,
        f"print(elastic_launch(config(3, max_restarts=1), work)({str(tmp_path)!r}))",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "{0: '1', 1: '1', 2: None}"
    assert "all ranks start again (restart 1 of 1)" in done.stderr


def test_a_signal_to_the_program_ends_the_job_and_is_raised(tmp_path):
    path = written(
        tmp_path,
        """
        def work():
            print("ready")
            signal.pause()
        """,
        """
        try:
            elastic_launch(config(2), work)()
        except SignalException as error:
            print("raised", error.sigval is signal.SIGTERM, error)
        print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
        """,
    )
    process = subprocess.Popen(
        [sys.executable, path], env=environment(), stdout=subprocess.PIPE, text=True
    )
    try:
        read_until(process, 2, "ready")
        process.terminate()
        out, _ = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    assert out.splitlines() == [
        "raised True work ended by SIGTERM to the launcher",
        "allhands run: ended by SIGTERM",
        "True",
    ]


def test_any_thread_may_start_ranks_and_so_may_two(tmp_path):
    done = run(
        tmp_path,
        "def work(x): return x, os.environ['RANK']",
        """
        results = {}
        def start(name):
            results[name] = elastic_launch(config(2), work)(name)
        threads = [threading.Thread(target=start, args=(name,)) for name in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(results["a"], results["b"])
        """,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "{0: ('a', '0'), 1: ('a', '1')} {0: ('b', '0'), 1: ('b', '1')}\n"
    )


def test_a_program_without_standard_streams_starts_ranks(tmp_path):
    path = written(
        tmp_path,
        "def work(): print('nobody sees this'); return os.environ['RANK']",
        """
        with open(sys.argv[1], "w") as file:
            file.write(str(elastic_launch(config(2), work)()))
        """,
    )
    command = [sys.executable, path, str(tmp_path / "results")]
    closed = ["bash", "-c", 'exec "$@" <&- >&- 2>&-', "bash", *command]
    done = subprocess.run(closed, env=environment(), timeout=LIMIT)
    assert done.returncode == 0
    assert (tmp_path / "results").read_text() == "{0: '0', 1: '1'}"


def test_output_goes_where_the_specs_say(tmp_path):
    logs = tmp_path / "logs"
    done = run(
        tmp_path,
        "def work(): print('hello')",
        f"""
        specs = DefaultLogsSpecs({str(logs)!r}, redirects=Std.OUT)
        elastic_launch(config(2, logs_specs=specs, run_id="id", role="r"), work)()
        """,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for rank in range(2):
        file = logs / "id" / "attempt_0" / str(rank) / "stdout.log"
        assert file.read_text() == "hello\n"


def test_lines_begin_as_the_template_says(tmp_path):
    template = "[${role_name}${local_rank}|${rank}]:"
    done = run(
        tmp_path,
        "def work(): print('hello', flush=True)",
        f"""
        more = dict(log_line_prefix_template={template!r}, role="r")
        elastic_launch(config(2, **more), work)()
        """,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == ["[r0|0]:hello", "[r1|1]:hello"]


def test_arguments_and_results_may_be_of_the_programs_own_classes(tmp_path):
    done = run(
        tmp_path,
        """
        class Number:
            def __init__(self, value):
                self.value = value

        def double(number):
            return Number(2 * number.value)
        """,
        """
        results = elastic_launch(config(2), double)(Number(4))
        assert all(type(each) is Number for each in results.values())
        print([each.value for each in results.values()])
        """,
    )
    assert (done.returncode, done.stdout) == (0, "[8, 8]\n"), done.stderr
