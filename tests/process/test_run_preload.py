"""Ranks forked from a preloaded process: a program sees what it sees without."""

import json
import os
import re
import resource
import signal
import time
import zipfile

import pytest

from harness.launcher import (
    environment,
    is_alive,
    launch,
    launched,
    program,
    read_until,
    wait_until,
)
from harness.pace import patient
from harness.ranks import LIMIT

PRELOAD = "--preload=numpy,allhands"

# All that a process can tell of how it was started.
SHOW = """
    import faulthandler, gc, json, os, resource, signal, stat, sys, threading, traceback
    import allhands

    def read(path):
        with open(path) as file:
            return file.read()

    def stream(text):
        return [
            repr(text), type(text.buffer).__name__, text.mode, text.errors,
            text.line_buffering, text.write_through, text.newlines, text.name,
            text.buffer.name, text.fileno(), text.isatty(), text.seekable(),
        ]

    def kind(fd):
        try:
            return oct(stat.S_IFMT(os.fstat(fd).st_mode))
        except OSError:
            return "closed"

    main = sys.modules["__main__"]
    parent = os.getppid()
    signal.signal(signal.SIGUSR1, signal.getsignal(signal.SIGUSR1))
    print(json.dumps({
        "environment": dict(os.environ),
        "arguments": [sys.argv, sys.orig_argv, read("/proc/self/cmdline")],
        "path": sys.path,
        "flags": [repr(sys.flags), sys.warnoptions, repr(sys._xoptions)],
        "main": {k: repr(v).split(" at 0x")[0] for k, v in vars(main).items()
                 if k.startswith("__") and k not in ("__builtins__", "__cached__")},
        "streams": [stream(s) for s in (sys.stdin, sys.stdout, sys.stderr)],
        "originals": [sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__,
                      sys.stderr is sys.__stderr__],
        "descriptors": [kind(fd) for fd in range(10)],
        "signals": [str(signal.getsignal(n)) for n in signal.valid_signals()],
        "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "session": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
        "parent": "allhands.run" in read(f"/proc/{parent}/cmdline"),
        "name": read("/proc/self/comm"),
        "place": [os.getcwd(), os.umask(0o22), os.getpriority(os.PRIO_PROCESS, 0)],
        "limits": [resource.getrlimit(n) for n in range(16)],
        "stack": [frame.filename for frame in traceback.extract_stack()],
        "threads": [t.name for t in threading.enumerate()],
        "tasks": len(os.listdir("/proc/self/task")),
        "garbage": [gc.isenabled(), gc.get_threshold()],
        "faulthandler": faulthandler.is_enabled(),
        "site": [repr(sys.modules.get(n)) for n in ("sitecustomize", "usercustomize")],
    }))
"""
OF_A_JOB = "MASTER_PORT", "ALLHANDS_STORE", "ALLHANDS_SECRET", "ALLHANDS_JOB"


def shown(*arguments, **options):
    """What SHOW printed on each of 2 ranks, without what no two jobs share."""
    done = launch("-n2", "--rdzv-id=1", *arguments, **options)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [json.loads(line.partition(" ")[2]) for line in done.stdout.splitlines()]
    for row in rows:
        for name in OF_A_JOB:
            assert row["environment"].pop(name)
    return sorted(rows, key=lambda row: row["environment"]["RANK"])


def assert_same(*arguments, **options):
    """That a program cannot tell whether its process was forked."""
    forked = shown(PRELOAD, *arguments, **options)
    executed = shown(*arguments, **options)
    assert len(forked) == 2
    for one, other in zip(forked, executed, strict=True):
        for name, value in other.items():
            assert one[name] == value, name


def test_a_program_starts_as_without(tmp_path):
    assert_same(program(tmp_path, SHOW), "--x", "1 2")


def test_a_program_named_by_a_link(tmp_path):
    os.makedirs(tmp_path / "real")
    program(tmp_path / "real", SHOW, "linked.py")
    os.symlink(tmp_path / "real" / "linked.py", tmp_path / "linked.py")
    assert_same("linked.py", cwd=tmp_path)


def test_a_module_starts_as_without(tmp_path):
    os.makedirs(tmp_path / "package")
    (tmp_path / "package" / "__init__.py").touch()
    program(tmp_path / "package", SHOW, "worker.py")
    assert_same("-m", "package.worker", "a", cwd=tmp_path)


def test_a_folder_and_an_archive_start_as_without(tmp_path):
    os.makedirs(tmp_path / "app")
    path = program(tmp_path / "app", SHOW, "__main__.py")
    assert_same("app", "a", cwd=tmp_path)
    with zipfile.ZipFile(tmp_path / "app.zip", "w") as archive:
        archive.write(path, "__main__.py")
    assert_same("app.zip", "a", cwd=tmp_path)


def test_run_path_starts_as_without(tmp_path):
    assert_same("--run-path", program(tmp_path, SHOW), "a")


def test_a_program_from_stdin_goes_to_the_first_rank():
    source = "import os; print(os.environ['RANK'])"
    for options in ((), (PRELOAD,)):
        done = launch("-n2", *options, "-", stdin=None, input=source)
        assert (done.returncode, done.stdout) == (0, "[rank0] 0\n")


def test_what_is_piped_in_goes_to_the_first_rank(tmp_path):
    path = program(tmp_path, "import sys; print(repr(sys.stdin.read()))")
    done = launch("-n2", PRELOAD, path, stdin=None, input="a\nb")
    assert sorted(done.stdout.splitlines()) == [
        "[rank0] 'a\\nb'",
        "[rank1] ''",
    ]


def test_streams_that_are_files_are_as_without(tmp_path):
    path = program(tmp_path, SHOW)
    rows = []
    for name, options in ("executed", ()), ("forked", (PRELOAD,)):
        logs = ["--redirects=3", f"--log-dir={tmp_path / name}"]
        done = launch("-n2", *options, *logs, path)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        for log in sorted((tmp_path / name).glob("*/*/*/stdout.log")):
            rows.append(json.loads(log.read_text())["streams"])
    assert len(rows) == 4
    assert rows[:2] == rows[2:]


@pytest.mark.parametrize(
    "variables",
    [
        {"PYTHONFAULTHANDLER": "1", "PYTHONWARNINGS": "error::UserWarning"},
        {"PYTHONIOENCODING": "latin-1:replace", "PYTHONNOUSERSITE": "1"},
        {"PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        {"PYTHONDEVMODE": "1", "PYTHONHASHSEED": "7"},
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"OMP_NUM_THREADS": "1", "TEXT_WITH_BYTES": "\udcff\n=x"},
    ],
    ids=lambda variables: next(iter(variables)),
)
def test_what_python_reads_as_it_starts_holds(tmp_path, variables):
    assert_same(program(tmp_path, SHOW), env=environment(**variables))


def test_the_users_own_site_module_runs_in_each_rank(tmp_path):
    log = tmp_path / "log"
    source = f"""
        import os, sys
        with open({str(log)!r}, "a") as file:
            file.write(f"{{__name__}} {{os.environ.get('RANK')}} {{sys.path[0]}}\\n")
    """
    os.makedirs(tmp_path / "site")
    program(tmp_path / "site", source, "sitecustomize.py")
    env = environment(PYTHONPATH=str(tmp_path / "site"))
    assert_same(program(tmp_path, SHOW), env=env)
    lines = [line for line in log.read_text().splitlines() if "None" not in line]
    assert sorted(lines) == sorted(
        2 * [f"sitecustomize {rank} {tmp_path / 'site'}" for rank in range(2)]
    )


@pytest.mark.parametrize(
    "end",
    [
        "sys.exit(3)",
        "sys.exit('a reason')",
        "os._exit(7)",
        "raise ValueError('bad value')",
        "os.kill(os.getpid(), signal.SIGKILL)",
        "os.kill(os.getpid(), signal.SIGINT); time.sleep(60)",
        "os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)",
        "sys.excepthook = lambda *e: print('hooked'); raise KeyError(1)",
        "os.close(1)",
        "print('an unfinished line', end='')",
    ],
)
def test_ranks_end_as_without(tmp_path, end):
    source = f"""
        import atexit, os, signal, sys, time
        atexit.register(print, "at exit")

        def step():
            {end}

        step()
    """
    path = program(tmp_path, source)
    seen = []
    for options in ((), (PRELOAD,)):
        done = launch(*options, path, env=environment(OMP_NUM_THREADS="1"))
        told = re.sub(r"pid \d+|ran for [\d.]+ s", "", done.stderr)
        seen.append((done.returncode, done.stdout, told))
    assert seen[0] == seen[1]


def test_a_module_is_loaded_once_and_from_the_programs_folder(tmp_path):
    loaded = f"""
        import atexit, os
        PID = os.getpid()
        SEEN = [os.environ.get(name) for name in ("OMP_NUM_THREADS", "RANK")]
        open({str(tmp_path / "loads")!r}, "a").write("load ")
        atexit.register(lambda: print("bye", PID != os.getpid()))
    """
    program(tmp_path, loaded, "colorsys.py")  # of the standard library, too
    path = program(
        tmp_path,
        """
        import colorsys, os
        print(colorsys.__file__, *colorsys.SEEN, colorsys.PID != os.getpid())
        """,
    )
    done = launch("-n3", "--preload=colorsys", path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = sorted(line.partition(" ")[2] for line in done.stdout.splitlines())
    assert lines == sorted(3 * ["bye True", f"{tmp_path}/colorsys.py 1 None True"])
    assert (tmp_path / "loads").read_text() == "load "


def test_no_other_module_is_there_than_without(tmp_path):
    path = program(tmp_path, "import sys; print(*sys.modules)")
    seen = []
    for options in ((), ("--preload=zlib",)):
        done = launch(*options, path)
        assert (done.returncode, done.stderr) == (0, "")
        seen.append(set(done.stdout.split()))
    # No file of a program can take the place of the others, which are Python's core.
    assert seen[1] - seen[0] == {"zlib", "_socket", "atexit", "gc"} - seen[0]


def test_ranks_have_streams_whatever_a_module_has_put_there(tmp_path):
    program(
        tmp_path,
        """
        import io, sys
        sys.stdin = None
        sys.stdout = io.StringIO()
        sys.stderr = io.TextIOWrapper(sys.stderr.detach(), encoding="ascii")
        """,
        "loaded.py",
    )
    path = program(
        tmp_path,
        """
        import sys
        print(sys.stdin.read(), sys.stdout.name)
        print(sys.stderr.name, sys.stderr.encoding, file=sys.stderr)
        """,
    )
    done = launch("--preload=loaded", path, env=environment(PYTHONUTF8="1"))
    assert (done.returncode, done.stdout) == (0, "[rank0]  <stdout>\n")
    assert done.stderr == "[rank0] <stderr> utf-8\n"


def test_no_two_ranks_draw_the_same_numbers(tmp_path):
    path = program(
        tmp_path,
        """
        import random, tempfile, uuid
        import numpy as np
        print(random.random(), np.random.random(), uuid.uuid4(), tempfile.mktemp())
        """,
    )
    done = launch("-n3", "--preload=random,tempfile,uuid,numpy.random", path)
    rows = [line.split()[1:] for line in done.stdout.splitlines()]
    assert len(rows) == 3
    for drawn in zip(*rows, strict=True):
        assert len(set(drawn)) == 3


def test_no_two_ranks_draw_the_same_numbers_from_torch(tmp_path):
    pytest.importorskip("torch")
    path = program(
        tmp_path,
        """
        import torch
        print(torch.rand(1).item(), torch.initial_seed())
        """,
    )
    done = launch("-n3", "--preload=torch", path)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split()[1:] for line in done.stdout.splitlines()]
    for drawn in zip(*rows, strict=True):
        assert len(set(drawn)) == 3


def test_the_ranks_meet(tmp_path):
    path = program(
        tmp_path,
        """
        import allhands as dist
        import numpy as np
        dist.init_process_group()
        ones = np.ones(5)
        dist.all_reduce(ones)
        print(ones[0])
        dist.destroy_process_group()
        """,
    )
    done = launch("-n5", PRELOAD, path)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == [f"[rank{r}] 5.0" for r in range(5)]


def test_ranks_answer_a_signal_with_their_record_from_their_start(tmp_path):
    path = program(tmp_path, "import signal; signal.raise_signal(signal.SIGUSR2)")
    options = [f"--dumps={tmp_path}/records", "--rdzv-id=job"]
    done = launch("-n2", PRELOAD, *options, path)
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "records/job_attempt_0.json").read_text())
    assert [record["rank"] for record in told["ranks"]] == [0, 1]


def test_ranks_start_again_from_a_new_process(tmp_path):
    loaded = f"open({str(tmp_path / 'loads')!r}, 'a').write('load ')"
    program(tmp_path, loaded, "loaded.py")
    path = program(
        tmp_path,
        """
        import os, sys
        attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
        print("attempt", attempt)
        sys.exit(attempt == "0")
        """,
    )
    done = launch("-n2", "--max-restarts=1", "--preload=loaded", path)
    assert done.returncode == 0
    assert done.stdout.count("attempt 1") == 2
    assert (tmp_path / "loads").read_text() == "load load "


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (None, "ModuleNotFoundError: No module named 'loaded'"),
        ("raise RuntimeError('no model here')", "RuntimeError: no model here"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("raise ImportError('two\\n  lines')", "ImportError: two lines"),
        ("import os; os._exit(5)", "the process that forks has ended"),
        (
            "import threading; threading.Thread(target=threading.Event().wait, "
            "daemon=True).start()",
            "loaded has started 1 thread, which a fork does not copy; with "
            "OMP_NUM_THREADS=1 NumPy and torch start none",
        ),
        (
            "import sys; sys.setprofile(lambda *a: None)",
            "a tracer or profiler runs, which would take all ranks for one process",
        ),
    ],
)
def test_what_cannot_be_preloaded_is_one_error_before_ranks_start(
    tmp_path, source, told
):
    if source is not None:
        program(tmp_path, source, "loaded.py")
    path = program(tmp_path, "print('started')")
    done = launch("-n3", "--preload=loaded", path)
    assert done.returncode == 126
    assert done.stdout == ""
    assert done.stderr == (
        f"python -m allhands.run: cannot start the ranks: --preload loaded: {told}\n"
    )


@pytest.mark.parametrize(
    ("arguments", "module", "told"),
    [
        (["--no-python", "true"], "allhands.run", "--preload and --no-python exclude"),
        (["x.py"], "allhands.launch", "--preload needs ranks with the same arguments"),
    ],
)
def test_what_preloading_does_not_go_with(tmp_path, arguments, module, told):
    program(tmp_path, "", "x.py")
    done = launch(PRELOAD, *arguments, module=module, cwd=tmp_path)
    assert done.returncode == 2
    assert told in done.stderr


def test_a_signal_while_modules_are_loaded_ends_the_job(tmp_path):
    program(
        tmp_path,
        "import os, time; print('loading', os.getpid()); time.sleep(1000)",
        "loaded.py",
    )
    path = program(tmp_path, "print('started')")
    with launched("-n2", "--preload=loaded", path) as job:
        [line] = read_until(job, 1, "loading")
        pid = int(line.split()[-1])
        begin = time.monotonic()
        job.send_signal(signal.SIGTERM)
        assert job.wait(LIMIT) == 128 + signal.SIGTERM
        assert time.monotonic() - begin < patient(20, begin)
        assert job.stdout is not None
        assert job.stdout.read() == "allhands run: ended by SIGTERM\n"
        assert not is_alive(pid)


def test_nothing_is_left_of_a_killed_launcher(tmp_path):
    path = program(
        tmp_path, "import os, time; print('runs', os.getpid()); time.sleep(1000)"
    )
    with launched("-n3", PRELOAD, path) as job:
        lines = read_until(job, 3, "runs")
        job.kill()
        pids = [int(line.split()[-1]) for line in lines]
        wait_until(lambda: not any(map(is_alive, pids)), 20, "ranks end")
        assert len(set(pids)) == 3


def test_many_ranks_fork_at_a_low_limit_of_descriptors(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    path = program(
        tmp_path,
        "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])",
    )
    done = launch(
        "-n40",
        "--preload=random",
        path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (50, limits[1])),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[1] for line in done.stdout.splitlines()] == ["50"] * 40


def test_a_first_group_loads_nothing_more(tmp_path):
    path = program(
        tmp_path,
        """
        import sys
        import allhands as dist
        import numpy as np
        before = set(sys.modules)
        dist.init_process_group()
        dist.all_reduce(np.ones(3))
        dist.destroy_process_group()
        print(sorted(set(sys.modules) - before))
        """,
    )
    done = launch("-n2", PRELOAD, path)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == ["[rank0] []", "[rank1] []"]
