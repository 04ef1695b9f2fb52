"""One of two ranks is lost in the middle of what they do; the other one has to notice.

`job` is two `Processes`. Each says "under way" once it is; who raises gives the time,
the error's name and its `ranks`.
"""

import signal
import time

from harness.pace import patient
from harness.ranks import LIMIT


def check_death_is_named(job, dead, after=0.0):
    """Hold that the other one names rank `dead` within a second of its death."""
    _wait_until_under_way(job)
    time.sleep(after)
    killed = time.monotonic()
    job.ranks[dead].kill()
    noticed, name, ranks = _outcome_without(job, dead)
    assert (name, ranks) == ("RankFailedError", [dead])
    assert noticed - killed < patient(1, killed)


def check_stop_meets_the_limit(job, stopped, limit):
    """Hold that the other one's call ends by its limit, in seconds, and names the rank.

    A receiver waits a second more for the slice that its sender may be writing.
    """
    _wait_until_under_way(job)
    job.ranks[stopped].send_signal(signal.SIGSTOP)
    at = time.monotonic()
    job.ranks[1 - stopped].wait(LIMIT)
    job.ranks[stopped].kill()
    noticed, name, ranks = _outcome_without(job, stopped)
    assert (name, ranks) == ("CollectiveTimeoutError", [stopped])
    assert noticed - at < limit + 1 + patient(1, at)


def _wait_until_under_way(job):
    for rank in range(2):
        assert job.read(rank) == "under way"


def _outcome_without(job, killed):
    codes = [0, 0]
    codes[killed] = -signal.SIGKILL
    return job.join(codes=codes)[1 - killed]
