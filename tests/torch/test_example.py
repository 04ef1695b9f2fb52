"""The example that trains by torch's own DistributedDataParallel."""

import pytest

from harness.documents import ROOT
from harness.launcher import launch

PATH = str(ROOT / "examples" / "torch_ddp.py")
pytest.importorskip("sklearn", reason="the example's digits are scikit-learn's")


def closing_line(*options):
    done = launch(*options)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_it_runs_on_any_number_of_ranks(num_ranks):
    line = closing_line(f"--nproc-per-node={num_ranks}", PATH, "--epochs=1")
    assert line.endswith("bit-identical on all ranks: yes")


def test_digits_are_learnt_on_whatever_torch_takes_for_gloo():
    options = ["--replace-gloo", "--nproc-per-node=2", PATH, "--backend=gloo"]
    words = closing_line(*options).split(" ")
    assert float(words[3]) >= 0.95
    assert " ".join(words[4:11]) == "on 2 ranks of gloo; communication takes"
    assert 0 <= float(words[11].removesuffix("%")) <= 100
    assert " ".join(words[-6:]) == "parameters bit-identical on all ranks: yes"
