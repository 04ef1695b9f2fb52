"""What was measured of this host, and that groups use it."""

import json
import os
import stat
from pathlib import Path

import numpy as np
import pytest

import allhands as dist
from allhands import _C, settings
from allhands.backends.tuned import (
    Tuned,
    figures_folder,
    read_tuned,
    tuned_path,
    write_tuned,
)
from harness.ranks import Processes, run_ranks

SIZES = [8 << 10, 64 << 10, 256 << 10]


@pytest.fixture
def runtime(tmp_path, monkeypatch):
    """A runtime directory of this test alone."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("ALLHANDS_CALIBRATION", "yes")
    return tmp_path


def put_figures(folder, slots, read):
    """As the core keeps them."""
    folder.mkdir(mode=0o700)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    lines = ["allhands figures 3", boot, _C.cpu_model(), *slots, *read, 0, 0, "end"]
    (folder / "figures").write_text("\n".join(map(str, lines)) + "\n")
    (folder / "figures").chmod(0o600)


def test_the_folder_is_in_the_runtime_directory(runtime, monkeypatch):
    assert figures_folder() == f"{runtime}/allhands"
    for none in ("", f"{runtime}/no_such_folder", "/etc" if os.geteuid() else "/none"):
        monkeypatch.setenv("XDG_RUNTIME_DIR", none)  # the last one is another user's
        assert figures_folder() == f"/dev/shm/allhands-{os.geteuid()}"
    monkeypatch.setenv("ALLHANDS_CALIBRATION", "no")
    assert figures_folder() == ""


def test_a_calibration_is_yes_or_no(monkeypatch):
    monkeypatch.setenv("ALLHANDS_CALIBRATION", "maybe")
    with pytest.raises(ValueError, match="'maybe': it must be yes or no"):
        settings.calibration.get()


def test_figures_that_are_kept_make_the_tuning(runtime):
    folder = figures_folder()
    assert _C.figures(folder, rehearse=False) is None
    put_figures(runtime / "allhands", [1500, 4600, 17000], [3500, 8600, 24000])
    assert _C.figures(folder, rehearse=False) == list(
        zip(SIZES, [1500, 4600, 17000], [3500, 8600, 24000], strict=True)
    )
    assert _C.tuning_here(1, figures=folder)["read_bytes"] == 4 << 20


def test_what_is_asked_for_wins_over_figures(runtime):
    put_figures(runtime / "allhands", [9, 9, 9], [8, 8, 8])
    folder = figures_folder()
    assert _C.tuning_here(1, figures=folder)["read_bytes"] == 16 << 10
    changed = _C.tuning_here(1, changes={"read_bytes": 8192}, figures=folder)
    assert changed["read_bytes"] == 8192


def test_a_first_group_works_whatever_it_finds(runtime):
    def body(rank):
        array = np.full(1 << 16, rank + 1.0)
        dist.all_reduce(array)
        return array[-1]

    assert run_ranks(2, body) == [3.0, 3.0]


def test_a_group_without_a_folder_for_figures_works(runtime):
    (runtime / "allhands").write_text("no folder")

    def body(rank):
        outputs = np.zeros(2)
        dist.all_gather_single(outputs, np.full(1, rank + 1.0))
        return outputs.tolist()

    assert run_ranks(2, body) == [[1.0, 2.0]] * 2


def test_ranks_that_were_told_otherwise_use_one_tuning(runtime):
    """One looks for figures and the other one must not: either's tuning holds."""
    put_figures(runtime / "allhands", [9, 9, 9], [8, 8, 8])
    source = """
        import os
        os.environ["ALLHANDS_CALIBRATION"] = "yes" if rank else "no"
        group = dist.new_group([0, 1])
        sums = []
        for count in (1 << 10, 1 << 13, 1 << 15, 1 << 18):
            outputs = np.zeros(size * count)
            dist.all_gather_single(outputs, np.full(count, rank + 1.0), group)
            assert outputs[0] == 1 and outputs[-1] == 2
            other = 1 - rank
            if rank == 0:
                dist.send(outputs, other, group)
            else:
                dist.recv(outputs, other, group)
            sums.append(outputs.sum())
        give(sums)
    """
    with Processes(2, source) as ranks:
        first, second = ranks.join()
    assert first == second == [3.0 * n for n in (1 << 10, 1 << 13, 1 << 15, 1 << 18)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"format": 2}',
        '{"format": 1, "cpu": "another"}',
        '{"format": 1, "cpu": CPU, "roomy": {}}',
        '{"format": 1, "cpu": CPU, "roomy": [], "crowded": {}}',
        '{"format": 1, "cpu": CPU, "roomy": {"speed": 1}, "crowded": {}}',
        '{"format": 1, "cpu": CPU, "roomy": {"read_bytes": 1}, "crowded": {}}',
        '{"format": 1, "cpu": CPU, "roomy": {"read_bytes": -1}, "crowded": {}}',
        '{"format": 1, "cpu": CPU, "roomy": {"spins": 1e400}, "crowded": {}}',
        '{"format": 1, "cpu": CPU, "roomy": {"spins": null}, "crowded": {}}',
        '{"format": 1, "cpu": CPU, "roomy": {"spins": 9223372036854775808}, '
        '"crowded": {}}',  # 2 ** 63
        '{"format": 1, "cpu": CPU, "roomy": {"\\udc80": 1}, "crowded": {}}',
        '{"format": 1, "cpu": CPU, "roomy": {"größe": 1}, "crowded": {}}',
        "[" * 60_000,
        "\ud800",
    ],
)
def test_a_file_that_is_none_counts_as_none(runtime, text):
    write_tuned(Tuned({}, {}))
    assert read_tuned() == Tuned({}, {})
    whole = text.replace("CPU", json.dumps(_C.cpu_model()))
    tuned_path().write_bytes(whole.encode(errors="surrogatepass") or b" ")
    assert read_tuned() is None


def test_a_file_that_others_may_write_counts_as_none(runtime):
    write_tuned(Tuned({"spins": 7}, {}))
    assert read_tuned() == Tuned({"spins": 7}, {})
    assert stat.S_IMODE(tuned_path().stat().st_mode) == 0o644
    tuned_path().chmod(0o666)
    tuned_path().write_text(tuned_path().read_text() + " ")  # another version
    assert read_tuned() is None


def test_the_numbers_hold_for_the_ranks_that_they_were_found_for():
    tuned = Tuned({"spins": 7}, {"spins": 8})
    assert tuned.changes(2, 2) == {"spins": 7}
    assert tuned.changes(3, 2) == {"spins": 8}
