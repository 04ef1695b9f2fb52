"""Requests that a thread runs say when they have ended, well or not."""

import pytest

from allhands.backends.threaded_request import ThreadedRequest


def test_a_request_ends():
    request = ThreadedRequest(lambda: None)
    assert (request.is_over(), request.Test()) == (False, False)
    request.run()
    assert (request.is_over(), request.Test()) == (True, True)


def test_a_failed_request_has_ended_and_says_why():
    def fail():
        raise RuntimeError("it broke")

    request = ThreadedRequest(fail)
    request.run()
    assert request.is_over()
    with pytest.raises(RuntimeError, match="it broke"):
        request.Test()
