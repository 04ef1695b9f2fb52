"""What is said of jobs with a planted fault; of healthy ones nothing is."""

import json

import pytest

from allhands.debug import command
from harness.faults import failed_job, good_job
from harness.planted_faults import FAULTS, HEALTHY, LESS_CLEAR, NEED_ALL


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_named(tmp_path, capsys, name):
    size, body, kind, guilty = FAULTS[name]
    job = failed_job(tmp_path, body, size)
    found = job.verdict()
    assert found is not None
    assert (found.kind, list(found.ranks)) == (kind, guilty), found.line
    assert job.place_of("HERE") in found.line, found.line
    # The launcher and the command say the same.
    assert job.last_lines.endswith(f", {found.line}")
    assert command.main(["--json", str(tmp_path / "records")]) == 1
    assert json.loads(capsys.readouterr().out)["line"] == found.line
    # Where the record of a rank is missing, the others suffice. If it is the guilty
    # one's, and the others were asked before they failed, nothing is left to tell.
    for rank in range(size):
        found = job.verdict(without=rank)
        if found is None:
            is_untold = rank in guilty and not job.failures(without=rank)
            assert name in NEED_ALL or is_untold
            continue
        assert set(found.ranks) <= set(guilty), found.line
        if name not in NEED_ALL and job.errors_tell(kind, guilty, without=rank):
            assert list(found.ranks) == guilty, found.line
            assert name in LESS_CLEAR or found.kind == kind, found.line


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_said_of_a_healthy_job(tmp_path, name):
    job = good_job(tmp_path, HEALTHY[name], 3)
    found = job.verdict()
    assert found is None, found.line
    found = job.verdict(without=1)
    assert found is None, found.line
