"""What the examples do beyond what examples/README.md shows (see tests/house).

Those of torch's are in tests/torch.
"""

import json
import subprocess
import sys

import pytest

from harness.documents import ROOT, read
from harness.launcher import environment, launch
from harness.ranks import LIMIT

EXAMPLES = ROOT / "examples"
DIGITS = EXAMPLES / "train_digits.py"
NAMES = {path.name for path in EXAMPLES.glob("*.py")} - {"torch_ddp.py"}
pytest.importorskip("sklearn", reason="the example's digits are scikit-learn's")


def closing_line(done):
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()[-1]


def test_every_example_is_shown_in_the_readme():
    commands = [command.line for command in read(EXAMPLES / "README.md").commands()]
    for path in EXAMPLES.glob("*.py"):
        assert any(f"examples/{path.name}" in line for line in commands), path.name


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
@pytest.mark.parametrize("name", sorted(NAMES))
def test_examples_run_on_any_number_of_ranks(name, num_ranks):
    short = {
        "train_digits.py": ["--epochs=1"],
        "work_queue.py": ["--jobs=4"],
    }
    path = str(EXAMPLES / name)
    done = launch(f"--nproc-per-node={num_ranks}", path, *short.get(name, []))
    assert closing_line(done)
    assert "[rank0] " in done.stdout


def test_digits_are_learnt_on_two_ranks():
    done = launch("--nproc-per-node", "2", str(DIGITS))
    words = closing_line(done).split(" ")
    assert words[:3] == ["[rank0]", "test", "accuracy"]
    assert float(words[3]) >= 0.95
    assert " ".join(words[4:]) == (
        "on 2 ranks; parameters bit-identical on all ranks: yes"
    )
    epochs = [line for line in done.stdout.splitlines() if "samples/s" in line]
    assert len(epochs) == 40  # a line each where there is no terminal
    assert epochs[-1].startswith("[rank0] epoch 40: loss 0.0")
    assert epochs[-1].endswith("%")


def test_losses_do_not_depend_on_the_number_of_ranks(tmp_path):
    curves = []
    for num_ranks in (1, 3, 4):  # 3 do not divide a batch of 64
        path = tmp_path / f"{num_ranks}.json"
        options = ["--epochs", "5", "--losses", str(path)]
        ranks = [f"--nproc-per-node={num_ranks}", "--preload=sklearn.datasets"]
        done = launch(*ranks, str(DIGITS), *options)
        assert "bit-identical on all ranks: yes" in closing_line(done)
        curves.append(json.loads(path.read_text()))
    assert len(curves[0]) == 5
    assert curves[0][-1] < curves[0][0]
    assert curves[1] == pytest.approx(curves[0], abs=1e-4)
    assert curves[2] == pytest.approx(curves[0], abs=1e-4)


def test_digits_alone():
    done = subprocess.run(
        [sys.executable, DIGITS, "--epochs", "1"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    line = closing_line(done)
    assert line.endswith("on 1 ranks; parameters bit-identical on all ranks: yes")


def test_progress_is_live_on_a_terminal():
    env = environment(TTY_COMPATIBLE="1", TTY_INTERACTIVE="1")
    done = subprocess.run(
        [sys.executable, DIGITS, "--epochs", "3"],
        env=env,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert closing_line(done)
    assert "\x1b[2K" in done.stdout  # redraws its line
    assert done.stdout.count("\nepoch") + done.stdout.startswith("epoch") <= 1
