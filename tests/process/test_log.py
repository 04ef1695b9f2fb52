"""The log of a rank: the tables of the documents are true, and lines have one form."""

import re

import pytest

from harness.documents import ROOT
from harness.ranks import Processes

PAGE = (ROOT / "docs/reference/debug.md").read_text().partition("## The log")[2]
SUBSYSTEMS = re.findall(r"^\| `([a-z]+)` \| [^`]", PAGE, re.MULTILINE)
LINE = re.compile(r"allhands: \[rank([01])\] (\w+): (.+)")
SAID = {  # what each level adds in the program below, without trace, page, records
    "error": set(),
    "warning": {"waiting", "faults"},
    "info": {"meeting", "groups"},
    "debug": {"settings", "operations"},
    "trace": set(),
}
PROGRAM = """
    part = dist.new_group([0, 1], group_desc="part")
    x = np.ones(3)
    with dist.debug.faults("rank=1,op=broadcast,do=delay:3s"):
        dist.broadcast(x, 0)
    try:
        dist.all_reduce(np.ones(rank + 1), group=part)
    except dist.CollectiveMismatchError:
        pass
    dist.all_reduce(x)
    dist.destroy_process_group()
"""


def rows():
    """Of the first table: both variables, the level, the subsystems."""
    cells = re.findall(r"^\| (`?\w+`?) \| (`?\w+`?) \| `(\w+)` \| (.*) \|$", PAGE, re.M)
    return [tuple(cell.replace("`", "") for cell in row) for row in cells]


def cases():
    for cpp, debug, level, _ in rows():
        for text in ("OFF", "INFO", "DETAIL") if debug == "any" else (debug,):
            yield cpp, text, level


def lines(monkeypatch, *names, size=2, program=PROGRAM):
    """What the ranks say; `names` are variables with values, "unset" for none."""
    for name in ("TORCH_CPP_LOG_LEVEL", "TORCH_DISTRIBUTED_DEBUG", "ALLHANDS_LOG"):
        monkeypatch.delenv(name, raising=False)
    if program is PROGRAM:  # in which a rank is late
        monkeypatch.setenv("ALLHANDS_PATIENCE", "0.1")
    for name, value in names:
        if value != "unset":
            monkeypatch.setenv(name, value)
    with Processes(size, program) as ranks:
        ranks.join()
    return [text.splitlines() for text in ranks.stderr]


def said(texts):
    """The subsystems, each line in the one form, by the rank that says it."""
    found = {}
    for rank, own in enumerate(texts):
        for line in own:
            who, subsystem, text = LINE.fullmatch(line).groups()
            assert int(who) == rank
            found.setdefault(subsystem, []).append(text)
    return found


def expected(level):
    names = list(SAID)
    return set().union(*(SAID[name] for name in names[: names.index(level) + 1]))


def test_the_page_has_each_level_and_subsystem():
    assert [level for _, _, level, _ in rows()] == [
        *("error", "warning", "warning", "info", "info", "debug", "trace")
    ]
    elsewhere = {"trace", "page", "records", "network"}
    assert elsewhere.union(*SAID.values()) == set(SUBSYSTEMS)
    for (*_, level, text), before in zip(rows()[1:], rows(), strict=False):
        if text != "the same":
            new = SAID[level] - {"operations"} or {"operations"}
            assert new <= set(re.findall(r"\w+", text)), (level, before)


# One combination for each level, to be cheap; the others by what they come to.
@pytest.mark.parametrize(
    "case",
    [
        *(("ERROR", "DETAIL"), ("unset", "DETAIL"), ("INFO", "OFF"), ("INFO", "INFO")),
        ("INFO", "DETAIL"),
    ],
)
def test_what_each_combination_says(case, monkeypatch):
    cpp, debug = case
    [level] = {found for *both, found in cases() if both == [cpp, debug]}
    variables = ("TORCH_CPP_LOG_LEVEL", cpp), ("TORCH_DISTRIBUTED_DEBUG", debug)
    found = said(lines(monkeypatch, *variables))
    assert set(found) == expected(level)
    operations = found.get("operations", [])
    assert any(" failed after " in text for text in operations) == bool(operations)
    assert any(" begins" in text for text in operations) == (level == "trace")


def test_each_combination_comes_to_its_level(monkeypatch):
    from allhands.rendezvous import log

    monkeypatch.setattr(log, "_debug_level", None)
    monkeypatch.delenv("ALLHANDS_LOG", raising=False)
    seen = 0
    for cpp, debug, level in cases():
        for name, value in (
            ("TORCH_CPP_LOG_LEVEL", cpp),
            ("TORCH_DISTRIBUTED_DEBUG", debug),
        ):
            monkeypatch.delenv(name, raising=False)
            if value != "unset":
                monkeypatch.setenv(name, value)
        assert log.effective_level().name.lower() == level, (cpp, debug)
        seen += 1
    assert seen == 13
    monkeypatch.setenv("ALLHANDS_LOG", "debug")
    assert log.effective_level() is log.LogLevel.DEBUG


def test_without_a_word_all_goes_well_in_silence(monkeypatch):
    quiet = """
    dist.all_reduce(np.ones(3))
    dist.destroy_process_group()
    """
    assert lines(monkeypatch, program=quiet) == [[], []]


@pytest.mark.parametrize("name", ["ALLHANDS_SECRET", "ALLHANDS_DEBUG_TOKEN"])
def test_a_secret_is_not_said(monkeypatch, name):
    monkeypatch.setenv(name, "swordfish-and-whale")
    found = said(lines(monkeypatch, ("ALLHANDS_LOG", "debug")))
    assert f"{name}=(not shown)" in found["settings"]
    assert "ALLHANDS_LOG=debug" in found["settings"]
    assert "swordfish" not in str(found)


def test_rank_0_says_which_variable_is_no_setting(monkeypatch):
    monkeypatch.setenv("ALLHANDS_SECRT", "swordfish")
    first, second = lines(monkeypatch, program="dist.all_reduce(np.ones(3))")
    assert first == [
        "allhands: [rank0] settings: environment variable ALLHANDS_SECRT is no "
        "setting; did you mean ALLHANDS_SECRET?"
    ]
    assert second == []


def test_the_level_may_be_set_while_the_program_runs(monkeypatch):
    program = """
    dist.barrier()
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    dist.all_reduce(np.ones(3))
    dist.set_debug_level(dist.DebugLevel.OFF)
    dist.all_reduce(np.ones(3))
    """
    found = said(lines(monkeypatch, ("TORCH_CPP_LOG_LEVEL", "INFO"), program=program))
    operations = found["operations"]
    assert len(operations) == 4  # of two ranks
    begins = "all_reduce #2 on group '0', 3 x float64 begins"
    assert operations.count(begins) == 2
