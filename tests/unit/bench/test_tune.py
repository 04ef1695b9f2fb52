"""`allhands tune` with real ranks, on a few small cells."""

import json
import re

import pytest

from allhands import _C
from allhands.__main__ import main
from allhands.backends.tuned import (
    Tuned,
    kept_tuned,
    read_tuned,
    tuned_path,
    write_tuned,
)
from allhands.bench import thresholds, tune


@pytest.fixture(autouse=True)
def configuration(tmp_path, monkeypatch):
    """A configuration of this test alone, and little to measure."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("ALLHANDS_CALIBRATION", "yes")
    few = thresholds.Threshold(
        ["read_bytes"], ["scatter"], [8 << 10], "staged", "read", [4096, 1 << 40]
    )
    monkeypatch.setattr(thresholds, "THRESHOLDS", (few,))
    monkeypatch.setattr(thresholds, "_CHUNKED", [])
    two = {name: thresholds.VARIANTS[name] for name in ("staged", "read")}
    monkeypatch.setattr(tune, "VARIANTS", two)
    return tmp_path


def test_what_was_found_is_kept_and_shown(capsys, tmp_path):
    file = tmp_path / "figures.json"
    assert main(["tune", "--ranks", "2", "--rounds", "1", "--json", str(file)]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^ +2 ranks on \d+ CPUs", out, re.M)
    assert re.search(r"read_bytes +\d+K", out)
    assert f"kept in {tuned_path()}" in out
    record = json.loads(file.read_text())
    (cell,) = record["cells"]
    assert (cell["op"], cell["size"]) == ("scatter", 8 << 10)
    assert all(cell["seconds"][variant] > 0 for variant in ("staged", "read"))
    numbers = {**record["roomy"], **record["crowded"]}
    usual = [_C.tuning_here(ranks)["read_bytes"] for ranks in (1, 1000)]
    assert numbers["read_bytes"] in (4096, 1 << 40, *usual)
    tuned = read_tuned()
    assert tuned is not None
    assert {**tuned.roomy, **tuned.crowded} == numbers


def test_a_dry_run_keeps_nothing(capsys):
    assert main(["tune", "--ranks", "2", "--rounds", "1", "--dry-run"]) == 0
    assert "nothing was kept" in capsys.readouterr().out
    assert not tuned_path().exists()


@pytest.mark.parametrize("calibration", ["yes", "no"])
def test_what_was_not_measured_stays(calibration, monkeypatch):
    write_tuned(Tuned({"spins": 7}, {"spins": 8}))
    monkeypatch.setenv("ALLHANDS_CALIBRATION", calibration)
    assert main(["tune", "--ranks", "2", "--rounds", "1"]) == 0
    tuned = kept_tuned()
    assert tuned is not None
    kept = [numbers for numbers in (tuned.roomy, tuned.crowded) if "spins" in numbers]
    assert len(kept) == 1  # the CPUs decide which


def test_forget(capsys):
    write_tuned(Tuned({"spins": 7}, {}))
    assert main(["tune", "--forget"]) == 0
    assert capsys.readouterr().out.startswith("forgot ")
    assert read_tuned() is None
    assert main(["tune", "--forget"]) == 0
    assert capsys.readouterr().out.startswith("nothing was kept")


def test_no_place_for_it_is_one_error_before_the_measuring(capsys, monkeypatch):
    monkeypatch.setattr(tune, "measure", pytest.fail)
    assert main(["tune", "--ranks", "2", "--json", "/no_such_folder/x"]) == 1
    assert "--json: '/no_such_folder/x' cannot be" in capsys.readouterr().err
    monkeypatch.setenv("XDG_CONFIG_HOME", "/proc/no_such_folder")
    assert main(["tune", "--ranks", "2", "--rounds", "1"]) == 1
    error = capsys.readouterr().err
    assert re.fullmatch(r"allhands tune: .*/proc/no_such_folder.*\n", error)


@pytest.mark.parametrize("text", ["1", "two", "2,", "65"])
def test_bad_ranks_are_refused(text, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["tune", "--ranks", text])
    assert f"'{text}'; want numbers from 2 to 64" in capsys.readouterr().err


def test_info_says_where_the_tuning_is_from(capsys, monkeypatch):
    main(["info"])
    assert "tuning: the defaults" in capsys.readouterr().out
    write_tuned(Tuned({"read_bytes": 1 << 40}, {"read_bytes": 1 << 40}))
    main(["info", "--ways", "all_gather", "--size", "16M"])
    out = capsys.readouterr().out
    assert f"tuning: found by `allhands tune`, {tuned_path()}" in out
    assert re.search(r"read +no", out)
    monkeypatch.setenv("ALLHANDS_TUNING", "read_bytes=64K,spins=9")
    main(["info", "--ways", "all_gather", "--size", "1M"])
    out = capsys.readouterr().out
    assert "; ALLHANDS_TUNING changes read_bytes, spins" in out
    monkeypatch.setenv("ALLHANDS_CALIBRATION", "no")
    main(["info"])
    assert "tuning: the defaults" in capsys.readouterr().out
