"""What is said to a launcher at its PMI's socket, and what becomes of its answers."""

import contextlib
import os
import socket
import subprocess
import sys
import threading

import pytest

from allhands.errors import DistStoreError
from allhands.rendezvous import pmi
from allhands.rendezvous.pmi import Pmi

GREETING = "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2\n"


@contextlib.contextmanager
def launcher(*answers):
    """A connection, and what it was asked: each line gets the next of `answers`.

    After the last one the launcher ends the connection.
    """
    ours, theirs = socket.socketpair()
    asked = []

    def answer():
        with theirs, theirs.makefile("rw") as lines:
            for text in (GREETING, *answers):
                asked.append(lines.readline().rstrip("\n"))
                lines.write(text)
                lines.flush()

    thread = threading.Thread(target=answer)
    thread.start()
    with ours:
        yield Pmi(ours.fileno()), asked, ours
    thread.join()


def test_names_of_hydra():
    answers = (
        "cmd=publish_result rc=0\n",
        "cmd=lookup_result rc=1\n",
        "cmd=lookup_result rc=0 port=there\n",
    )
    with launcher(*answers) as (connection, asked, ours):
        connection.publish("place", "here")
        assert connection.look_up("place") is None
        assert connection.look_up("place") == "there"
        assert os.get_blocking(ours.fileno()), "MPI reads from it, too"
    assert asked == [
        "cmd=init pmi_version=1 pmi_subversion=1",
        "cmd=publish_name service=place port=here",
        "cmd=lookup_name service=place",
        "cmd=lookup_name service=place",
    ]


def test_names_of_slurm():
    answers = (
        "cmd=publish_result info=ok\n",
        "cmd=lookup_result info=fail\n",
        "cmd=lookup_result info=ok port=there\n",
    )
    with launcher(*answers) as (connection, _, _):
        connection.publish("place", "here")
        assert connection.look_up("place") is None
        assert connection.look_up("place") == "there"


def test_an_answer_without_end_is_refused():
    with (
        launcher("x" * (1 << 17)) as (connection, _, _),
        pytest.raises(DistStoreError, match="bytes came and no end of a line"),
    ):
        connection.look_up("place")


def test_a_goodbye_takes_back_what_was_published():
    answers = (
        "cmd=publish_result rc=0\n",
        "cmd=unpublish_result rc=0\n",
        "cmd=finalize_ack rc=0\n",
    )
    with launcher(*answers) as (connection, asked, _):
        connection.publish("place", "here")
        for _ in range(2):
            connection.leave()
    assert asked[2:] == ["cmd=unpublish_name service=place", "cmd=finalize"]


@pytest.mark.parametrize("reason", ["MPI has begun", "it was forked"])
def test_no_goodbye_for_another(monkeypatch, reason):
    with launcher("cmd=finalize_ack rc=0\n") as (connection, asked, _):
        with monkeypatch.context() as patch:
            if reason == "MPI has begun":
                patch.setattr(pmi, "is_mpi_begun", lambda: True)
            else:
                patch.setattr(os, "getpid", lambda: -1)
            connection.leave()
        assert len(asked) == 1
        connection.leave()
        assert asked[1:] == ["cmd=finalize"]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("cmd=publish_result rc=1\n", r"publish_name .*: it answered .*'rc': '1'"),
        ("cmd=publish_result info=fail\n", r"it answered .*'info': 'fail'"),
        ("cmd=maxes rc=0\n", r"it answered .*'cmd': 'maxes'"),
        ("cmd=publish_res", r"the connection has ended"),
        ("", r"the connection has ended"),
    ],
)
def test_a_launcher_that_does_not_do_it(answer, told):
    with (
        launcher(answer) as (connection, _, _),
        pytest.raises(DistStoreError, match=told),
    ):
        connection.publish("place", "here")


def test_an_answer_that_comes_late_is_not_the_next_ones(monkeypatch):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(GREETING.encode())
        connection = Pmi(ours.fileno())
        monkeypatch.setattr(connection, "_limit_s", 0.02)
        with pytest.raises(DistStoreError, match=r"nothing within 0\.02 s"):
            connection.look_up("place")
        theirs.sendall(b"cmd=lookup_result rc=0 port=late\n")
        with pytest.raises(DistStoreError, match="an earlier answer did not come"):
            connection.look_up("other")


def test_a_line_that_is_too_long_is_not_said():
    with (
        launcher() as (connection, asked, _),
        pytest.raises(DistStoreError, match=r"has 1037 bytes; it may have 1000"),
    ):
        connection.publish("place", "x" * 1000)
    assert len(asked) == 1


def test_which_socket_is_a_launchers(monkeypatch):
    """Not a file that has its number, nor a socket that this process has made."""
    monkeypatch.setattr(pmi, "is_mpi_begun", lambda: False)
    monkeypatch.setattr(pmi, "_pmi", None)
    ours, theirs = socket.socketpair()
    with ours, theirs, open("/dev/null") as file:
        for number in (ours.fileno(), file.fileno(), 9999):
            monkeypatch.setenv("PMI_FD", str(number))
            assert not pmi.has_pmi()
        text = "from allhands.rendezvous.pmi import has_pmi; print(has_pmi())"
        done = subprocess.run(
            [sys.executable, "-c", text],
            env=os.environ | {"PMI_FD": str(ours.fileno())},
            pass_fds=[ours.fileno()],
            capture_output=True,
            text=True,
        )
        assert done.stdout == "True\n", done.stderr
