"""One of two ranks is lost amid what they do, on demand; the other one has to notice.

`job` is two `Processes`. Each gives the time before the call at which one is lost; who
raises gives the time, the error's name and its `ranks`.
"""

import signal

from harness.pace import patient
from harness.ranks import LIMIT


def check_death_is_named(job, dead):
    """Hold that the other one names rank `dead` within a second of its death."""
    died, (noticed, name, ranks) = _outcome_without(job, dead)
    assert (name, ranks) == ("RankFailedError", [dead])
    assert noticed - died < patient(1, died)


def check_stop_meets_the_limit(job, stopped, limit):
    """Hold that the other one's call ends by its limit, in seconds, and names the rank.

    A receiver waits a second more for the slice that its sender may be writing.
    """
    job.ranks[1 - stopped].wait(LIMIT)
    job.ranks[stopped].kill()
    at, (noticed, name, ranks) = _outcome_without(job, stopped)
    assert (name, ranks) == ("CollectiveTimeoutError", [stopped])
    assert noticed - at < limit + 1 + patient(1, at)


def _outcome_without(job, lost):
    """When that rank came to that call, and what the other one gave."""
    codes = [0, 0]
    codes[lost] = -signal.SIGKILL
    results = job.join(codes=codes)
    return results[lost], results[1 - lost]
