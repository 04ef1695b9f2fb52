"""The table that stores keep: an empty queue is none, and numbers are counters."""

import pytest

from allhands.store.table import Table


def test_a_queue_is_gone_when_it_is_empty():
    table = Table()
    table.push("q", b"1")
    assert table.has(["q"])
    assert (table.pop("q"), table.pop("q")) == (b"1", None)
    assert not table.has(["q"])
    assert table.queues == {}


def test_deleting_nothing_changes_nothing():
    table = Table()
    assert table.delete("k") is False
    assert table.list_keys() == []


@pytest.mark.parametrize("value", [b"", b"x", b"1 ", b"1_0", b"9223372036854775808"])
def test_only_an_int64_is_counted_on(value):
    table = Table()
    table.set("k", value)
    with pytest.raises(ValueError, match="add: the value of key 'k' is not an int64"):
        table.add("k", 1)
    assert table.value_of("k") == value
