"""How torch comes to know the backend, and what that must not break."""

import subprocess
import sys

import pytest

import allhands_torch

torch = pytest.importorskip("torch")


def run(program):
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )


def test_torch_knows_the_backend_and_has_loaded_nothing_else():
    done = run(
        """if True:
        import sys
        import torch
        print(torch.distributed.Backend.ALLHANDS)
        print([name for name in sys.modules if name.partition(".")[0] == "allhands"])
        """
    )
    assert done.stdout.split() == ["allhands", "[]"]


def test_what_goes_wrong_does_not_reach_torch(monkeypatch, caplog):
    def refuse(*arguments, **options):
        raise RuntimeError("another torch")

    monkeypatch.setattr(torch.distributed.Backend, "register_backend", refuse)
    allhands_torch.register()
    [record] = caplog.records
    assert "does not get the backend" in record.message
    assert "another torch" in record.exc_text


def test_without_torch_distributed_there_is_nothing_to_do(monkeypatch, caplog):
    monkeypatch.setattr(torch.distributed, "is_available", lambda: False)
    monkeypatch.delattr(torch.distributed.Backend, "register_backend")
    allhands_torch.register()
    assert not caplog.records


def test_options_are_refused():
    done = run(
        """if True:
        import torch.distributed as dist
        class Options: pass
        try:
            dist.init_process_group(
                "allhands", store=dist.HashStore(), rank=0, world_size=1,
                pg_options=Options())
        except TypeError as error:
            print(error)
        """
    )
    assert "backend 'allhands' takes no pg_options, got" in done.stdout
