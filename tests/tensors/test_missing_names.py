"""The list of what is missing names all that torch.distributed has and we have not."""

import inspect
import re
import subprocess
import sys

import pytest
import torch.distributed

import allhands as dist
from harness.documents import ROOT

NAMES = "import torch.distributed; print(*dir(torch.distributed))"
INTERNAL = {"GroupName", "RankType", "c10d_logger", "config", "logging_handlers"}


def is_of_torch(name):
    value = getattr(torch.distributed, name)
    home = value.__name__ if inspect.ismodule(value) else value.__module__
    return home.startswith(("torch.distributed", "torch._C"))


def test_the_list_of_what_is_missing_is_complete():
    text = (ROOT / "docs/differences.md").read_text()
    [listed] = re.findall(r"## What is not there yet\n(.*?)\n## ", text, re.DOTALL)
    # In a process of its own: here other tests may have imported more of its modules.
    asked = [sys.executable, "-c", NAMES]
    told = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    names = [name for name in told.split() if not name.startswith("_")]
    missing = {name for name in names if not hasattr(dist, name)} - INTERNAL
    missing = {name for name in missing if is_of_torch(name)}
    assert {"checkpoint", "fsdp", "nn", "tensor"} | missing <= set(
        re.findall(r"`(\w+)`", listed)
    )
    assert "GradBucket" in missing  # it was looked for


@pytest.mark.parametrize("name", ["checkpoint", "fsdp", "nn", "tensor"])
def test_a_module_that_is_torchs_own_says_where_it_is(name):
    told = f"no attribute '{name}': import torch.distributed.{name}, and let allhands"
    with pytest.raises(AttributeError, match=told):
        getattr(dist, name)


def test_a_name_that_nobody_has_says_no_more():
    with pytest.raises(AttributeError, match=r"no attribute 'checkpoints'$"):
        dist.checkpoints  # noqa: B018
