"""The launcher where the kernel gives it few descriptors, processes or bytes."""

import os
import resource
import subprocess
import sys

import pytest

from harness.launcher import environment, launch, program
from harness.ranks import LIMIT

RANKS = 20
LIMITS = """
    import resource
    print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def limited(soft: int, hard: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A job whose launcher may have so many descriptors."""
    return launch(
        *arguments,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)),
    )


def test_a_low_soft_limit_is_raised_for_the_launcher_alone(tmp_path):
    soft, hard = 50, resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    done = limited(soft, hard, "-n", str(RANKS), program(tmp_path, LIMITS))
    assert (done.returncode, done.stderr) == (0, "")
    shown = {line.partition(" ")[2] for line in done.stdout.splitlines()}
    assert len(done.stdout.splitlines()) == RANKS
    assert shown == {f"{soft} {hard}"}


def test_all_ranks_meet_at_a_low_soft_limit(tmp_path):
    path = program(
        tmp_path,
        """
        import allhands as dist
        dist.init_process_group()
        dist.barrier()
        print("met")
        dist.destroy_process_group()
        """,
    )
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    done = limited(50, hard, "-n", str(RANKS), path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("met") == RANKS


@pytest.mark.parametrize(
    ("options", "needed"), [((), 5), (("--tee=3",), 7), (("--redirects=3",), 3)]
)
def test_a_low_hard_limit_is_refused_before_any_rank_starts(tmp_path, options, needed):
    marker = tmp_path / "started"
    logs = [f"--log-dir={tmp_path / 'logs'}"] if options else []
    command = ["--no-python", "touch", str(marker)]
    done = limited(60, 60, "-n", str(RANKS), *logs, *options, *command)
    assert done.returncode == 126
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    start, _, rest = line.partition(f"{RANKS} ranks need ")
    assert start == "python -m allhands.run: cannot start the ranks: "
    all_needed = int(rest.split()[0])
    own = all_needed - needed * RANKS
    assert 32 < own < 50
    assert rest == (
        f"{all_needed} file descriptors in this process, which may have 60: raise the "
        f"hard limit (`ulimit -n {all_needed}` as root), or start at most "
        f"{(60 - own) // needed}"
    )
    assert not marker.exists()
    fewer = (60 - own) // needed
    done = limited(60, 60, "-n", str(fewer), *logs, *options, *command)
    assert (done.returncode, marker.exists()) == (0, True)


# As where the user may have no more processes: root may always.
FOURTH_IS_REFUSED = """
import errno, subprocess, sys
from allhands import run

class Popen(subprocess.Popen):
    left = 4  # of the ranks and the guard

    def __init__(self, *arguments, **options):
        if Popen.left == 0:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        Popen.left -= 1
        super().__init__(*arguments, **options)
        print(self.pid, flush=True)

subprocess.Popen = Popen
sys.exit(run.main(["-n", "9", "--no-python", "sleep", "1000"]))
"""


def test_where_the_kernel_refuses_a_process_the_others_are_ended():
    done = subprocess.run(
        [sys.executable, "-c", FOURTH_IS_REFUSED],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 126
    [line] = done.stderr.splitlines()
    assert line.startswith(
        "allhands run: cannot start the ranks: the kernel allows no process for rank 3 "
        "of 9: raise the limit of this user (`ulimit -u`"
    )
    assert line.endswith("or of the container (pids.max), or start fewer ranks")
    for pid in done.stdout.split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def test_a_job_outlives_a_log_that_is_full(tmp_path):
    largest = 4096
    path = program(tmp_path, "for _ in range(200):\n    print('words' * 10)")
    done = launch(
        *("-n", "2", "--tee=1", f"--log-dir={tmp_path}/logs", "--rdzv-id=job"),
        path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (largest,) * 2),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("words" * 10) == 400
    logs = [tmp_path / f"logs/job/attempt_0/{rank}/stdout.log" for rank in (0, 1)]
    assert sorted(done.stderr.splitlines()) == [
        f"allhands run: {log} takes no more: File too large; the job continues, and "
        "the file lacks what comes while this lasts"
        for log in logs
    ]
    assert [log.stat().st_size for log in logs] == [largest] * 2


def test_what_ended_a_rank_is_told_where_its_log_is_full(tmp_path):
    text = "import sys; sys.stderr.write('words' * 1000); raise ValueError('seen')"
    done = launch(
        *("-n", "1", "--tee=2", f"--log-dir={tmp_path}/logs"),
        program(tmp_path, text),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)),
    )
    assert done.returncode == 1
    assert "takes no more: File too large" in done.stderr
    assert "allhands run: rank 0 failed: ValueError: seen" in done.stderr
