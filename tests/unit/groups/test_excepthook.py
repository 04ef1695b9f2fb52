"""Uncaught exceptions carry the rank."""

import sys
import threading

import pytest

import allhands as dist
from allhands.groups import excepthook


@pytest.fixture
def _hook(monkeypatch):
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)


@pytest.mark.usefixtures("_hook")
def test_every_line_gets_the_rank(capsys):
    excepthook.show_rank(3, print)
    try:
        raise ValueError("one\ntwo")
    except ValueError:
        sys.excepthook(*sys.exc_info())
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "[rank3]: Traceback (most recent call last):"
    assert lines[-2:] == ["[rank3]: ValueError: one", "[rank3]: two"]


@pytest.mark.usefixtures("_hook")
def test_where_no_thread_can_be_started_the_exception_is_shown_all_the_same(
    capsys, monkeypatch
):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    error = ValueError("of the program")
    monkeypatch.setattr(sys, "last_value", error, raising=False)
    excepthook.show_rank(3, pytest.fail)
    sys.excepthook(ValueError, error, None)
    assert capsys.readouterr().err == "[rank3]: ValueError: of the program\n"


@pytest.mark.usefixtures("_hook")
def test_the_world_sets_and_restores_it():
    dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    assert sys.excepthook is not sys.__excepthook__
    dist.destroy_process_group()
    assert sys.excepthook is sys.__excepthook__


@pytest.mark.usefixtures("_hook")
def test_a_hook_set_later_stays():
    excepthook.show_rank(0, print)
    later = print
    sys.excepthook = later
    excepthook.restore()
    assert sys.excepthook is later
