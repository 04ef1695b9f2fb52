"""What is said where little is known; planted faults are in tests/process."""

from typing import get_args

import pytest

from allhands.debug.dumps import Dump, Entry, Failure, Group
from allhands.debug.verdict import Kind, verdict


def failed(error, message):
    """A rank of two that has failed, and whose record has no operation."""
    failure = Failure(error, message, (), "", ())
    return Dump(0, 2, "here", 1, "failure", 10**11, {}, (), (), failure)


def test_a_failure_alone_is_told_as_it_is():
    found = verdict([failed("DistBackendError", "the arena is full")])
    assert found.line == "rank 0 raised DistBackendError: the arena is full"
    assert (found.kind, found.ranks) == ("failure", (0,))
    assert found.kind in get_args(Kind)


SECOND = 10**9


@pytest.mark.parametrize(
    ("reason", "seconds", "is_told"),
    [("signal", 1, False), ("signal", 6, True), ("failure", 1, True)],
)
def test_who_looks_for_a_message_for_a_moment_is_well(reason, seconds, is_told):
    text = "recv: timed out"
    failure = Failure("CollectiveTimeoutError", text, (1,), "default_pg", ())
    what = "default_pg", "recv", 1, "failed", True, "float32", 4, "", 1, 0, False
    entry = Entry(*what, created=100 * SECOND)
    groups = {"default_pg": Group("default_pg", "", (0, 1))}
    at = (100 + seconds) * SECOND
    dump = Dump(0, 2, "here", 1, reason, at, groups, (entry,), (), failure)
    assert (verdict([dump]) is not None) is is_told
