"""Which backends are said to be there."""

import sys
from types import SimpleNamespace

import pytest

import allhands as dist
from allhands.backends import gloo_library


@pytest.mark.parametrize("name", ["nccl", "ucc", "xccl"])
def test_absent_backends_say_what_to_use(name):
    store = dist.HashStore()
    with pytest.raises(RuntimeError, match=f'have {name.upper()} built in.*"native"'):
        dist.init_process_group(name, store=store, rank=0, world_size=1)
    assert not dist.is_initialized()
    assert not dist.is_backend_available(name)
    assert not getattr(dist, f"is_{name}_available")()


@pytest.mark.parametrize(
    ("text", "is_there"),
    [
        ("native", True),
        ("CPU:Native", True),
        ("undefined", True),
        ("cpu:native,cuda:nccl", False),
        ("cuda:nccl,cpu:native", False),
        ("cpu:native,cuda:fake", True),
        ("nope", False),
        ("cpu:", False),
    ],
)
def test_pairs_are_available_where_each_backend_is(text, is_there):
    assert dist.is_backend_available(text) is is_there


def test_gloo_is_there_with_a_torch_that_has_it(tmp_path, monkeypatch):
    monkeypatch.delenv("ALLHANDS_REPLACE_GLOO", raising=False)
    for has_gloo in (True, False):
        torch = SimpleNamespace(is_gloo_available=lambda has=has_gloo: has)
        monkeypatch.setitem(sys.modules, "torch.distributed", torch)
        assert dist.is_gloo_available() is has_gloo
    monkeypatch.setitem(sys.modules, "torch.distributed", SimpleNamespace())
    assert not dist.is_gloo_available()
    monkeypatch.delitem(sys.modules, "torch.distributed")
    folder = SimpleNamespace(origin=None)  # that is called torch, as one of the tests
    for spec, is_there in ((None, False), (folder, False), (sys.__spec__, True)):
        monkeypatch.setattr(gloo_library, "find_spec", lambda name, spec=spec: spec)
        assert dist.is_gloo_available() is is_there
    monkeypatch.setattr(gloo_library, "find_spec", lambda name: None)
    monkeypatch.setenv("ALLHANDS_REPLACE_GLOO", "1")
    assert dist.is_gloo_available()


@pytest.mark.parametrize(
    ("modules", "is_there"),
    [
        ({"__init__": "", "MPI": "raise SystemExit('it was begun')"}, True),
        ({"__init__": ""}, False),
        ({"__init__": "raise RuntimeError('cannot load MPI library')"}, False),
    ],
)
def test_mpi_is_there_where_its_library_is_and_is_not_begun(
    modules, is_there, tmp_path, monkeypatch
):
    monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)
    monkeypatch.delitem(sys.modules, "mpi4py", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mpi4py").mkdir()
    for name, text in modules.items():
        (tmp_path / "mpi4py" / f"{name}.py").write_text(text)
    assert dist.is_mpi_available() is is_there
    assert "mpi4py" not in sys.modules
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", SimpleNamespace())
    assert dist.is_mpi_available()
