"""The README's second demo: one network is trained on two hosts."""

import pytest

from harness.documents import ROOT
from harness.fake_hosts import fake_hosts
from harness.nodes import run_nodes

pytest.importorskip("sklearn", reason="the example's digits are scikit-learn's")


def test_digits_are_learnt_on_two_hosts():
    path = str(ROOT / "examples/train_digits.py")
    with fake_hosts(2) as hosts:
        ended = run_nodes([1, 2], path, "--epochs=3", hosts=hosts)
    assert [(end.code, end.stderr) for end in ended] == [(0, "")] * 2
    last = ended[0].stdout.splitlines()[-1]
    assert last.startswith("[rank0] test accuracy 0.")
    assert last.endswith("on 3 ranks; parameters bit-identical on all ranks: yes")
