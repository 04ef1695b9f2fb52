"""What a rank tells of the exception that ends it, and what its peers make of that."""

import pickle
import traceback

import numpy as np
import pytest

import allhands as dist
from allhands.backends.remote_exception import headline, heard, told
from harness.ranks import run_ranks


class UnsayableError(Exception):
    def __str__(self):
        raise ValueError("no")


def raised(error):
    """`error` with a traceback."""
    with pytest.raises(type(error)) as info:
        raise error
    return info.value


def test_peers_hear_what_was_told():
    error = raised(KeyError("täglich\nzwei"))
    cause = heard(3, told(error))
    assert (cause.rank, cause.type_name) == (3, "KeyError")
    assert cause.message == r"'täglich\nzwei'"
    assert cause.traceback == "".join(traceback.format_exception(error)).strip()
    lines = str(cause).splitlines()
    assert lines[:2] == ["what ended rank 3:", "  Traceback (most recent call last):"]
    assert lines[-1] == r"  KeyError: 'täglich\nzwei'"
    again = pickle.loads(pickle.dumps(cause))
    assert (again.rank, str(again)) == (3, str(cause))


@pytest.mark.parametrize("text", ["x" * 99_999, "é\n" * 99_999, "\ud800\x1b" * 99_999])
def test_of_a_long_traceback_the_end_is_kept(text):
    error = raised(ValueError(text))
    what = told(error)
    assert 15_990 < len(what.encode()) <= 16_000
    cause = heard(0, what)
    assert cause.traceback.startswith("...\n")
    assert cause.traceback.endswith(told(ValueError(text))[-99:])
    assert len(headline(error)) == min(600, len(f"ValueError: {text}".split("\n")[0]))


def test_nothing_reaches_a_terminal_that_it_would_obey():
    error = ValueError("a\x1b[31mb\r\x1e\u202ec")
    assert headline(error) == r"ValueError: a\x1b[31mb\r\x1e\u202ec"
    assert heard(0, told(error)).message == r"a\x1b[31mb\r\x1e\u202ec"
    hostile = heard(0, "\x1b]0;x\x07\x1em\x9b\x1et\x00")
    assert str(hostile) == "what ended rank 0:\n  t\\x00"
    assert (hostile.type_name, hostile.message) == (r"\x1b]0;x\x07", r"m\x9b")


@pytest.mark.parametrize(
    "text", ["", "a\x1eb", "\x1e\x1e\x1e", "\x1e\x1e" + "x" * 16_000, None, [1]]
)
def test_what_no_rank_tells_is_no_cause(text):
    assert heard(0, text) is None


def test_exceptions_that_cannot_be_said():
    assert headline(UnsayableError()).endswith("Error: <its text cannot be made>")
    assert heard(0, told(UnsayableError())).message == "<its text cannot be made>"
    assert headline(KeyboardInterrupt()) == "KeyboardInterrupt"
    assert headline(dist.DistError("x")) == "allhands.errors.DistError: x"


@pytest.mark.parametrize("is_known", [True, False])
def test_every_call_that_a_rank_fails_has_its_exception_as_cause(is_known):
    cause = told(raised(ValueError("bad"))) if is_known else "what no rank tells"

    def causes(rank):
        world = dist.group.WORLD
        dist.barrier()
        if rank == 1:
            world.communicator.note_failure("ValueError: bad", cause)
            dist.destroy_process_group()
            return None
        work = dist.all_reduce(np.ones(1), async_op=True)
        calls = [
            work.wait,
            lambda: dist.all_reduce(np.ones(1)),
            lambda: dist.recv(np.ones(1), 1),
            work.result,
        ]
        found = []
        for call in calls:
            with pytest.raises(dist.RankFailedError, match="ended by Val") as info:
                call()
            assert info.value.ranks == [1]
            found.append(info.value.__cause__)
        return [*found, work.exception().__cause__]

    for found in run_ranks(3, causes)[::2]:
        assert len(found) == 5
        for each in found:
            if is_known:
                assert isinstance(each, dist.RemoteError)
                assert (each.rank, each.message) == (1, "bad")
                assert "raise error\nValueError: bad" in each.traceback
            else:
                assert each is None
