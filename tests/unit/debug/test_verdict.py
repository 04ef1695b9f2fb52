"""What is said where little is known; planted faults are in tests/process."""

from typing import get_args

from allhands.debug.dumps import Dump, Failure
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
