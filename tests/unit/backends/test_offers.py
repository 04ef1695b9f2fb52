"""Backends that installed packages offer by entry points."""

import importlib
import sys
import textwrap
from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from allhands.__main__ import main
from allhands.backends import lookup
from allhands.backends.offers import ENTRY_POINTS, Offer, offers
from allhands.backends.registry import Backend
from harness import documents
from harness.ranks import GROUP_LIMIT, run_ranks

MODULE = """
from allhands.backends.fake import FakeCommunicator


class Mine(FakeCommunicator):
    devices = ("cpu", "abacus")

    def __init__(self, options, pg_options):
        self.told = options.group_rank, options.group_size, pg_options


class Deviceless(Mine):
    devices = 5


number = 5
"""


@pytest.fixture
def install(tmp_path, monkeypatch, registered):
    """Lays packages as they are installed, each with entry points and a module."""
    monkeypatch.syspath_prepend(tmp_path)

    def lay(package, entries, module="", text=MODULE):
        about = tmp_path / f"{package}-1.5.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Name: {package}\nVersion: 1.5\n")
        (about / "entry_points.txt").write_text(f"[allhands.backends]\n{entries}\n")
        if module:
            (tmp_path / f"{module}.py").write_text(textwrap.dedent(text))
            monkeypatch.delitem(sys.modules, module, raising=False)
        importlib.invalidate_caches()
        return about

    yield lay
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(path.stem, None)


def test_a_package_offers_a_backend(install):
    install("mine-backend", "Mine = mine_a:Mine", "mine_a")
    assert offers() == [Offer("mine", "mine_a:Mine", "mine-backend 1.5")]

    def body(rank):
        group = dist.new_group(backend="cpu:native,abacus:mine", pg_options=None)
        dist.all_reduce(np.ones(1), group=group)
        return dist.get_backend_config(), dist.get_backend_impl().told

    assert run_ranks(2, body, backend="MINE") == [
        ("cpu:mine,abacus:mine", (rank, 2, None)) for rank in range(2)
    ]
    assert Backend.MINE == "mine"
    assert Backend.backend_list.count("mine") == 1
    assert dist.get_default_backend_for_device("abacus:0") == "mine"
    assert dist.get_default_backend_for_device("cpu") == "native"
    assert dist.is_backend_available("mine")


def test_the_backend_of_the_documents_is_offered_as_they_say(install):
    page = documents.read(documents.ROOT / "docs" / "howto" / "write-a-backend.md")
    head, entry = page.blocks("text")[0].splitlines()
    assert head == f'[project.entry-points."{ENTRY_POINTS}"]'
    name, value = entry.replace('"', "").split(" = ")
    module = value.partition(":")[0]
    text = page.programs()[f"{module}.py"]
    install("a-package", f"{name} = {value}", module, text)

    store, limit = dist.HashStore(), timedelta(seconds=GROUP_LIMIT)

    def body(rank):
        sums = []
        for number in (1, 2):  # worlds, one after the other
            dist.init_process_group(
                name, store=store, rank=rank, world_size=2, timeout=limit
            )
            assert type(dist.get_backend_impl()).__module__ == module
            array = np.full(2, 10.0 * number + rank)
            dist.all_reduce(array)
            sums.append(array.tolist())
            dist.destroy_process_group()
        return sums

    assert run_ranks(2, body, init=False) == [[[21, 21], [41, 41]]] * 2


def test_they_are_looked_for_only_where_nothing_else_has_the_name(
    install, registered, monkeypatch
):
    install("mine-backend", "native = mine_b:Mine\nmine = mine_b:Mine", "mine_b")
    monkeypatch.setattr(lookup, "offers", lambda: pytest.fail("looked"))
    registered("mine", lambda *_: None, devices="cpu")
    for text in ("native", "undefined", "cpu:native,cuda:nccl", "mine"):
        dist.BackendConfig(text)
    assert "mine_b" not in sys.modules


@pytest.mark.parametrize(
    ("entry", "text", "cause"),
    [
        ("mine_c:Mine", "import no_such_module_xyz", ModuleNotFoundError),
        ("mine_c:Mine", "1 / 0", ZeroDivisionError),
        ("mine_c:Mine", "x =", SyntaxError),
        ("mine_c:Other", MODULE, AttributeError),
        ("no_such_module_xyz:Mine", MODULE, ModuleNotFoundError),
        ("mine_c:number", MODULE, None),
        ("?!", MODULE, AttributeError),
    ],
)
def test_one_that_cannot_be_loaded_names_package_entry_point_and_cause(
    install, entry, text, cause
):
    install("mine-backend", f"mine = {entry}", "mine_c", text)
    with pytest.raises(RuntimeError) as info:
        dist.init_process_group("mine", store=dist.HashStore(), rank=0, world_size=1)
    named = f"backend 'mine' of mine-backend 1.5 (entry point mine = {entry}) "
    assert str(info.value).startswith(named)
    assert type(info.value.__cause__) is (cause or type(None))
    assert (cause is None) or cause.__name__ in str(info.value)
    assert not dist.is_initialized()
    assert not dist.is_backend_available("mine")
    assert "mine" not in Backend.backend_list


def test_one_that_cannot_be_registered_is_named(install):
    install("mine-backend", "a b = mine_h:Mine\nmine = mine_h:Deviceless", "mine_h")
    for name, problem in (("a b", "no blanks"), ("mine", "devices 5: .*int")):
        with pytest.raises(RuntimeError, match=rf"mine-backend 1\.5 .*{problem}"):
            dist.BackendConfig(name)
    assert not {"mine", "a b"} & {*Backend.backend_list}


def test_two_packages_with_one_name_are_both_named(install, registered):
    install("first", "mine = mine_d:Mine", "mine_d")
    install("second", "MINE = mine_d:Mine")
    match = r"2 offers .*'mine': first 1\.5 .*second 1\.5 .*uninstall"
    with pytest.raises(RuntimeError, match=match):
        dist.BackendConfig("mine")
    assert "mine_d" not in sys.modules
    registered("mine", lambda *_: None, devices="cpu")
    assert str(dist.BackendConfig("mine")) == "cpu:mine"


def test_a_wrong_name_lists_what_there_is(install, registered):
    install("mine-backend", "mine = mine_e:Mine\nnative = mine_e:Mine", "mine_e")
    registered("abacus", lambda *_: None, devices="cpu")
    with pytest.raises(AssertionError) as info:
        dist.BackendConfig("cpu:natve")
    assert str(info.value) == (
        "Unknown backend type natve, did you mean 'native'? There are native, gloo, "
        "nccl, xccl, mpi, fake, abacus (registered), mine (of mine-backend 1.5); "
        "`allhands info` says which of them can be used here. Packages add backends by "
        "entry points 'allhands.backends', programs by Backend.register_backend"
    )
    for name, guess in (("mpich", "mpi"), ("mime", "mine"), ("ncll", "nccl")):
        with pytest.raises(AssertionError, match=f"did you mean '{guess}'"):
            dist.BackendConfig(name)
    with pytest.raises(AssertionError, match=r"Unknown backend type qq\. There are"):
        dist.BackendConfig("qq")


def test_metadata_that_cannot_be_read_is_told(install, capsys):
    about = install("broken", "mine = mine_f:Mine")
    (about / "entry_points.txt").write_bytes(b"[allhands.backends]\n\xff = x:y\n")
    importlib.invalidate_caches()
    with pytest.raises(
        RuntimeError, match=r"cannot be read: UnicodeDecodeError"
    ) as info:
        dist.BackendConfig("mine")
    assert isinstance(info.value.__cause__, UnicodeDecodeError)
    assert main(["info"]) == 0
    assert "entry points of the packages" in capsys.readouterr().out


def test_info_lists_them_without_importing_them(install, capsys):
    install("mine-backend", "mine = mine_g:Mine\nnative = mine_g:Mine", "mine_g")
    install("half", "gone = no_such_module_xyz:Mine\n mine = mine_g:number")
    install("other", "other = mine_g:Mine")
    assert main(["info"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    [native] = [line for line in lines if line.startswith("native ")]
    assert native.endswith(
        "; not used, as it has the same name: mine-backend 1.5 (entry point native = "
        "mine_g:Mine)"
    )
    [mine] = [line for line in lines if line.startswith("mine ")]
    assert "no: 2 offers have the name 'mine'" in mine
    [gone] = [line for line in lines if line.startswith("gone ")]
    assert "there is no module 'no_such_module_xyz'" in gone
    assert "other  other 1.5 (entry point other = mine_g:Mine)" in lines
    assert "mine_g" not in sys.modules
    assert "mine" not in Backend.backend_list


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a,b", "a\n"])
def test_a_name_that_nobody_could_ask_for_is_refused(registered, name):
    with pytest.raises(ValueError, match="no blanks, commas or colons"):
        registered(name, lambda *_: None, devices="cpu")
