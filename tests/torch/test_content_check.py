"""ALLHANDS_CHECK=content in programs of torch.distributed on this engine."""

import pytest

pytest.importorskip("torch")

from harness.torch_jobs import TRAINING, TorchJob

LYING = """
os.environ["ALLHANDS_CHECK"] = "content"
import allhands
from allhands.backends import content
init("allhands")
"""


def test_training_in_which_all_is_well_is_as_without_it(tmp_path):
    source = """
results = []
for number, setting in enumerate(["none", "content"]):
    os.environ["ALLHANDS_CHECK"] = setting
    init("allhands", number)
    ours = DDP(model())
    train(ours)
    results.append(weights(ours))
    dist.destroy_process_group()
give(results[0] == results[1])
"""
    with TorchJob(tmp_path, 2, TRAINING + source) as job:
        assert job.join() == [True, True]


def test_a_rank_with_another_gradient_is_named(tmp_path):
    source = (
        LYING
        + """
plain = content.Content.hashes
wrapped = DDP(model())
if rank == 1:
    content.Content.hashes = lambda self: [n + 1 for n in plain(self)]
try:
    train(wrapped, steps=1)
except RuntimeError as error:
    give([type(error).__name__, str(error).splitlines()[0]])
"""
    )
    with TorchJob(tmp_path, 3, TRAINING + source) as job:
        for name, text in job.join():
            assert "ContentMismatchError" in name + text
            assert "odd: [1]" in text
