"""The table of array libraries: what each module has, and that a row is enough."""

import importlib
import sys
import textwrap
import types

import numpy as np
import pytest

import allhands as dist
from allhands import arrays
from allhands.arrays import MODULES, Library
from harness.ranks import run_ranks

NAMES = sorted(
    name for name in {*vars(Library), *Library.__annotations__} if name[0] != "_"
)

MODULE = textwrap.dedent(
    """
    from allhands._C import Buffer, DType
    from allhands.arrays.future import Future

    reducers = {}
    accepted = []

    class Column:
        def __init__(self, numbers):
            self.numbers = numbers

    def accepts(kind):
        accepted.append(kind)
        return issubclass(kind, Column)

    def as_buffer(column, writable):
        numbers = column.numbers
        address = numbers.__array_interface__["data"][0]
        return Buffer(address, DType.Float64, numbers.shape, None, numbers)

    def device_of(column):
        return "cpu"

    def from_numpy(numbers):
        return Column(numbers)

    def from_bytes(memory, shape, dtype):
        return Column(memory.view("f8").reshape(shape))

    class ColumnFuture(Future):
        pass

    new_future = ColumnFuture
    """
)


@pytest.mark.parametrize("row", MODULES)
def test_every_module_has_what_a_library_must_have(row):
    if row not in ("numpy", "builtins"):
        pytest.importorskip(row)
    module = importlib.import_module(MODULES[row])
    assert set(NAMES) <= set(module.__all__)
    assert all(hasattr(module, name) for name in NAMES)


@pytest.fixture
def columns(tmp_path, monkeypatch):
    """A library of one file, in the table by one row."""
    (tmp_path / "columns.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(MODULES, "columns", "columns")
    yield importlib.import_module("columns")
    del sys.modules["columns"]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_one_file_and_one_row_are_a_library(size, columns):
    def body(rank):
        def column(*numbers):
            return columns.Column(np.array(numbers, float))

        total = column(rank, 1, 2)
        dist.all_reduce(total)
        parts = [column(0) for _ in range(size)]
        work = dist.all_gather(parts, column(rank), async_op=True)
        work.wait()
        assert isinstance(work.get_future(), columns.ColumnFuture)
        spread = column(0)
        dist.scatter(
            spread, [column(5 + i) for i in range(size)] if rank == 0 else None
        )
        again = dist.all_reduce_init(spread)
        again()
        if size > 1:
            taken = column(-1)
            dist.sendrecv(column(rank), taken, (rank + 1) % size, (rank - 1) % size)
            assert taken.numbers.tolist() == [(rank - 1) % size]
        return [x.numbers.tolist() for x in (total, *parts, spread)]

    ranks = list(range(size))
    expected = [
        [sum(ranks), size, 2 * size],
        *([r] for r in ranks),
        [sum(ranks) + 5 * size],
    ]
    assert run_ranks(size, body) == [expected] * size
    # Once for a class; ranks that are threads may ask at the same time.
    assert set(columns.accepted) == {columns.Column}
    assert len(columns.accepted) <= size
    assert arrays.device_of(columns.Column(np.zeros(1))) == "cpu"


@pytest.mark.parametrize("name", ["torch", "cupy"])
def test_a_programs_own_module_is_no_library(name, monkeypatch):
    """One that has a library's name, as a file beside the program may."""
    own = types.ModuleType(name)
    own.__file__ = f"{name}.py"
    own.Table = type("Table", (), {"__module__": name})
    for each in [each for each in sys.modules if each.partition(".")[0] == name]:
        monkeypatch.delitem(sys.modules, each)
    monkeypatch.setitem(sys.modules, name, own)
    monkeypatch.setattr(arrays, "_libraries", {})
    monkeypatch.delitem(sys.modules, MODULES[name], raising=False)

    def body(rank):
        with pytest.raises(TypeError, match=f"{name}.Table"):
            dist.all_reduce(own.Table())
        with dist.record_comm("region"):
            objects = [None]
            dist.all_gather_object(objects, np.arange(3))
        return objects[0].tolist()

    assert run_ranks(1, body) == [[0, 1, 2]]
