"""What was measured of this host, and that groups use it."""

import os
from pathlib import Path

import numpy as np
import pytest

import allhands as dist
from allhands import _C, settings
from allhands.backends.tuned import figures_folder
from harness.ranks import run_ranks

SIZES = [8 << 10, 32 << 10, 128 << 10]


@pytest.fixture
def runtime(tmp_path, monkeypatch):
    """A runtime directory of this test alone."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("ALLHANDS_CALIBRATION", "yes")
    return tmp_path


def cpu_model():
    """As the kernel names it."""
    with open("/proc/cpuinfo") as file:
        found = [line for line in file if line.startswith("model name")]
    return found[0].partition(": ")[2].strip() if found else os.uname().machine


def put_figures(folder, slots, read):
    """As the core keeps them."""
    folder.mkdir(mode=0o700)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    lines = ["allhands figures 1", boot, cpu_model(), *slots, *read, "end"]
    (folder / "figures").write_text("\n".join(map(str, lines)) + "\n")
    (folder / "figures").chmod(0o600)


def test_the_folder_is_in_the_runtime_directory(runtime, monkeypatch):
    assert figures_folder() == f"{runtime}/allhands"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
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
    assert _C.tuning_here(1, figures=folder)["read_bytes"] == 1 << 40


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


def test_a_group_without_a_folder_for_figures_works(runtime, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/proc/no_such_folder")

    def body(rank):
        outputs = np.zeros(2)
        dist.all_gather_single(outputs, np.full(1, rank + 1.0))
        return outputs.tolist()

    assert run_ranks(2, body) == [[1.0, 2.0]] * 2
