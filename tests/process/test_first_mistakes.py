"""What somebody who tries the examples gets wrong first, and what they are told."""

import re
import subprocess
import sys

from harness.documents import ROOT
from harness.launcher import environment, launch
from harness.ranks import LIMIT

EXAMPLES = ROOT / "examples"


def changed(folder, name, old, new):
    """A copy of an example with one piece of its text replaced."""
    text = (EXAMPLES / name).read_text()
    assert old in text
    path = folder / name
    path.write_text(text.replace(old, new, 1))
    return str(path)


def failed(*arguments, **variables):
    """What the launcher says at the end of a job that fails."""
    done = launch("--standalone", *arguments, env=environment(**variables))
    assert done.returncode != 0
    lines = done.stderr.splitlines()
    [start] = [i for i, s in enumerate(lines) if s.startswith("allhands run: rank")]
    return lines[start:]


def alone(name, **variables):
    return subprocess.run(
        [sys.executable, EXAMPLES / name],
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


def test_started_without_the_launcher():
    done = alone("point_to_point.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "blocking:  [0. 0. 0.]"


def test_started_without_the_launcher_that_it_needs():
    done = alone("point_to_point.py", ALLHANDS_NEEDS_LAUNCHER="1")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "environment variable RANK expected, but not set" in last
    assert "Start the program with `allhands run" in last


def test_one_rank_alone_has_nobody_to_send_to(tmp_path):
    path = changed(tmp_path, "point_to_point.py", "if is_sender(rank, size)", "if True")
    head, place, *_ = failed(path)
    assert "1 is not in group '0'; it must be in [0, 1)" in head
    assert place.endswith("in blocking: dist.send(array, dst=rank + 1)")


def test_a_rank_that_does_not_exist(tmp_path):
    path = changed(tmp_path, "point_to_point.py", "dst=rank + 1", "dst=2")
    head, place, *_ = failed("--nproc-per-node=2", path)
    assert "rank 0 failed: ValueError: send: Invalid destination rank: 2" in head
    assert place.endswith("in blocking: dist.send(array, dst=2)")


def test_arrays_of_different_sizes(tmp_path):
    old, new = "np.arange(1_000_003) *", "np.arange(1_000_003 + rank) *"
    path = changed(tmp_path, "ring_all_reduce.py", old, new)
    head, call, place, *_ = failed("--nproc-per-node=2", path)
    assert re.search(
        r"CollectiveMismatchError: rank \d sent int64, count 100000\d$", head
    )
    assert "in recv(int64, count 100000" in call
    assert place.endswith("in whole: dist.recv(incoming, left)")


def test_a_rank_that_dies():
    path = str(EXAMPLES / "ring_all_reduce.py")
    report = failed("--nproc-per-node=3", path, ALLHANDS_FAULTS="rank=1,do=kill")
    assert report[0] == "allhands run: rank 1 failed: killed by SIGKILL"
    # The others are stopped, if they have not noticed and failed before that.
    others = r"  (\d) (?:more failed after it|others? stopped because of rank 1)"
    found = [match for line in report if (match := re.match(others, line))]
    assert sum(int(match[1]) for match in found) == 2


def test_a_rank_that_leaves_early(tmp_path):
    old = "    dist.gather(before"
    new = "    if rank == 1:\n        raise SystemExit\n" + old
    path = changed(tmp_path, "collectives.py", old, new)
    head, call, place, *more = failed("--nproc-per-node=2", path)
    assert re.search(r"RankFailedError: rank 1 \(pid \d+\) left the group$", head)
    assert "in gather(int64, count 2, root 0) #5 on group '0'" in call
    assert "rank 1 was last in all_gather #4" in call
    assert "  ended before it, with exit code 0: rank 1" in more
    assert place.endswith("in tour: dist.gather(before, arrays, dst=0)")
