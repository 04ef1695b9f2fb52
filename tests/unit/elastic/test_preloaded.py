"""The process that forks the ranks, where something fails."""

import contextlib
import errno
import os
import signal
import sys

import pytest

from allhands.elastic.preloaded import Preloaded, _adopt_orphans
from allhands.elastic.start import Program
from allhands.elastic.worker_spec import Preload
from harness.launcher import environment, program


@contextlib.contextmanager
def preloaded(folder, module):
    """A process that loads `module` from `folder`, and then forks `train.py`."""
    command = [sys.executable, str(folder / "train.py")]
    process = Preloaded(Preload([module], str(folder)), command, environment(), None)
    try:
        yield process
    finally:
        process.end()
        process.reap()


@pytest.fixture
def adopting():
    """This process takes orphans in, whatever it did before."""
    before = _adopt_orphans(True)
    yield
    _adopt_orphans(before)


def test_no_rank_runs_where_one_cannot_be_forked(tmp_path):
    program(
        tmp_path,
        f"""
        import os
        fork, calls = os.fork, []

        def fork_but_for_one():
            calls.append(0)
            if len(calls) == 2:
                raise BlockingIOError({errno.EAGAIN}, "no more")
            return fork()

        os.fork = fork_but_for_one
        """,
        "loaded.py",
    )
    path = program(tmp_path, "print('runs', flush=True)")
    reading, writing = os.pipe()
    rank = Program([sys.executable, path], environment(), False, writing, writing)
    forked = []
    with preloaded(tmp_path, "loaded") as process:
        process.check()
        try:
            forked.append(process.start(rank))
            with pytest.raises(BlockingIOError):
                process.start(rank)
            forked.append(process.start(rank))  # it lives, and the ranks wait for it
        finally:
            os.close(writing)
            for each in forked:
                os.kill(each.pid, signal.SIGKILL)
    for each in forked:
        each.wait()
    with open(reading, "rb") as output:
        assert output.read() == b""


@pytest.mark.parametrize("module", ["colorsys", "there_is_no_such_module"])
def test_this_process_takes_orphans_in_as_before(tmp_path, adopting, module):
    with preloaded(tmp_path, module) as process:
        if module == "colorsys":
            process.check()
        else:
            with pytest.raises(OSError, match="No module named"):
                process.check()
    assert _adopt_orphans(True)
