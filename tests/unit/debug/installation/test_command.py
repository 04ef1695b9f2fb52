"""`allhands info`: the table of ways, as people and tests read it."""

import re

import pytest

from allhands import _C, DistBackendError
from allhands.__main__ import main
from allhands.debug.installation import facts
from allhands.debug.installation.command import can_read_peers


def _taken(op, size, ranks, *, reads=True, shared=False, tuning=None):
    rows = _C.ways(
        op,
        size,
        ranks,
        can_read_peers=reads,
        has_shared_arrays=shared,
        tuning=tuning or {},
    )
    return next(way for way, is_worth, _ in rows if is_worth)


def test_the_tuning_decides():
    assert _taken("all_gather", 1 << 16, 2, tuning={"read_bytes": 1 << 16}) == "read"
    assert _taken("all_gather", 1 << 16, 2, tuning={"read_bytes": 1 << 17}) == "slots"


def test_what_a_host_refuses_is_not_taken():
    assert _taken("gather", 1 << 20, 2) == "cooperative"
    assert _taken("gather", 1 << 20, 2, reads=False) == "slots"
    assert _taken("gather", 1 << 20, 2, reads=False, shared=True) == "mapped"


def test_an_unknown_operation_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match=r"'frob'.*all_reduce.*all_to_all"):
        _taken("frob", 8, 2)


def test_the_overview_has_every_operation_in_80_columns(capsys):
    assert main(["info", "--ways", "-n", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    can = "can" if can_read_peers() else "cannot"
    assert re.match(rf"4 ranks on \d+ CPUs; processes {can} read", lines[0])
    assert all(len(line) <= 80 for line in lines[1:])
    shown = {line.split()[0]: line.split() for line in lines if line.strip()}
    assert shown["reduce_scatter"][1] == "slots"
    assert "…" not in "".join(lines)


def test_an_order_that_was_asked_for_is_told(capsys, monkeypatch):
    text = "reductions between hosts: in rank order (ALLHANDS_REDUCE_ORDER)"
    assert main(["info"]) == 0
    assert text not in capsys.readouterr().out
    monkeypatch.setenv("ALLHANDS_REDUCE_ORDER", "rank")
    assert main(["info"]) == 0
    assert text in capsys.readouterr().out.splitlines()


def test_one_operation_is_shown_with_reasons(capsys):
    main(["info", "--ways", "all_reduce", "--size", "8"])
    out = capsys.readouterr().out
    assert re.search(r"one phase +taken +small inputs", out)
    assert re.search(r"mapped +no ", out)
    assert re.search(r"slots +else ", out)


def test_a_bad_size_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["info", "--ways", "all_reduce", "--size", "some"])
    assert "'some'; want bytes such as" in capsys.readouterr().err


def test_it_says_whether_there_is_ucx(capsys, monkeypatch):
    monkeypatch.setattr(facts, "ucx_version", lambda: "1.13.1")
    assert main(["info"]) == 0
    assert "UCX: 1.13.1" in capsys.readouterr().out.splitlines()

    def missing():
        raise DistBackendError("there is no UCX (a reason)")

    monkeypatch.setattr(facts, "ucx_version", missing)
    assert main(["info"]) == 0
    assert "UCX: none: there is no UCX (a reason)" in capsys.readouterr().out
