"""Which backends are said to be there."""

import sys
from types import SimpleNamespace

import pytest

import allhands as dist
from allhands.backends import registry
from allhands.backends.gloo import library as gloo_library
from allhands.backends.lookup import why_not
from allhands.backends.nccl import found as nccl_found
from allhands.backends.nccl import library as nccl_library
from allhands.backends.xccl import library as xccl_library


def test_absent_backends_say_what_to_use():
    store = dist.HashStore()
    with pytest.raises(RuntimeError, match=r'have UCC built in.*"native"'):
        dist.init_process_group("ucc", store=store, rank=0, world_size=1)
    assert not dist.is_initialized()
    assert not dist.is_backend_available("ucc")
    assert not dist.is_ucc_available()


@pytest.mark.parametrize(
    ("has_bindings", "problem"),
    [(False, r"pip install 'nccl4py\[cu13\]'"), (True, "no CUDA driver")],
)
def test_nccl_that_is_not_found_says_how_to_get_it(has_bindings, problem, monkeypatch):
    monkeypatch.setattr(nccl_found, "HAS_BINDINGS", has_bindings)
    monkeypatch.setattr(nccl_library, "_DRIVER", "libno_such_driver.so.1")
    with pytest.raises(RuntimeError, match=f"have NCCL built in: .*{problem}.*native"):
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    assert not dist.is_initialized()
    assert not dist.is_nccl_available()
    assert dist.get_default_backend_for_device("cuda:1") == "native"
    assert str(dist.BackendConfig("undefined")) == "cpu:native,cuda:native"


def test_nccl_that_is_found_serves_gpus_by_default(monkeypatch):
    monkeypatch.setattr(registry, "why_not_found", lambda: "")
    assert dist.get_default_backend_for_device("cuda") == "nccl"
    assert str(dist.BackendConfig("undefined")) == "cpu:native,cuda:nccl"


def test_nccl_that_does_not_work_says_why(monkeypatch):
    monkeypatch.setattr(nccl_library, "why_not_found", lambda: "")
    monkeypatch.setattr(nccl_library, "_tried", lambda: "CUDA's driver finds no GPU")
    assert "cannot be used: CUDA's driver finds no GPU." in why_not("nccl")
    monkeypatch.setattr(nccl_library, "_tried", lambda: "NCCL 2.32.3, 1 GPU(s)")
    assert why_not("nccl") == ""
    assert nccl_library.nccl_version() == "NCCL 2.32.3, 1 GPU(s)"


def test_oneccl_that_is_not_found_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr(xccl_library, "_FILE", "libno_such_library.so.2")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    here = f"LD_LIBRARY_PATH={tmp_path}/lib"
    missing = rf"is not found \(libno_such.*pip install oneccl impi-rt, .*{here}"
    unsought = rf"does not look for oneCCL in {tmp_path}/lib; .*{here}"
    for expected in (missing, unsought):
        store = dist.HashStore()
        with pytest.raises(RuntimeError, match=f"have XCCL built in: .*{expected}"):
            dist.init_process_group("xccl", store=store, rank=0, world_size=1)
        assert not dist.is_xccl_available()
        (tmp_path / "lib").mkdir(exist_ok=True)
        (tmp_path / "lib" / "libno_such_library.so.2").touch()


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ("exit code -11 of the process that tried", "exit code -11 of the process"),
        ("CCL_WARN| so and so\noneCCL 2022.1.0", None),
    ],
)
def test_oneccl_is_there_where_a_process_could_use_it(told, why, monkeypatch):
    monkeypatch.setattr(xccl_library, "_FILE", "libc.so.6")  # that the loader finds
    monkeypatch.setattr(xccl_library, "told_by", lambda source: told)
    xccl_library._tried.cache_clear()
    try:
        assert dist.is_xccl_available() is (why is None)
        assert (why or "") in why_not("xccl")
        assert xccl_library.xccl_version() == ("" if why else "oneCCL 2022.1.0")
    finally:
        xccl_library._tried.cache_clear()


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
