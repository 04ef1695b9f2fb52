"""The table that stores keep: an empty queue is none, and numbers are counters."""

import pytest

from allhands._C import StoreTable, decode_store_record, store_record_size
from allhands.store.arguments import as_count


def test_a_queue_is_gone_when_it_is_empty():
    table = StoreTable()
    table.push("q", b"1")
    assert table.contains_all(["q"])
    assert (table.pop("q"), table.pop("q")) == (b"1", None)
    assert not table.contains_all(["q"])
    assert table.queue_length("q") == 0


def test_deleting_nothing_changes_nothing():
    table = StoreTable()
    assert table.delete_key("k") is False
    assert table.list_keys() == []


@pytest.mark.parametrize(
    "value", [b" ", b"x", b"1 2", b"1_0", b"+-1", b"+", b"9223372036854775808"]
)
def test_only_an_int64_is_counted_on(value):
    table = StoreTable()
    table.set("k", value)
    with pytest.raises(ValueError, match="add: the value of key 'k' is not an int64"):
        table.add("k", 1)
    assert table.find("k") == value


@pytest.mark.parametrize(
    ("text", "number"), [("", 0), (" 12", 12), ("-3 \n", -3), ("+7", 7), ("007", 7)]
)
def test_a_number_is_read_as_it_may_be_written(text, number):
    table = StoreTable()
    table.set("k", text.encode())
    assert table.add("k", 1) == number + 1
    assert as_count("k", text.encode()) == number


def records(table):
    """What the table has noted."""
    data, offset = table.take_records(), 0
    while offset < len(data):
        num_bytes = store_record_size(data, offset)
        yield decode_store_record(data, offset, num_bytes)
        offset += num_bytes


def test_changes_that_were_noted_make_another_table_alike():
    table, other = StoreTable(), StoreTable()
    table.set("before", "x")
    table.note_changes()
    table.set("k", "v")
    table.append("k", b"w")
    assert table.compare_set("k", "no", "match") == b"vw"
    table.add("n", 41)
    table.push("q", "1")
    table.pop("q")
    table.pop("q")
    table.delete_key("n")
    table.delete_key("n")
    changes = list(records(table))
    assert changes == [
        (1, "k", b"v"),
        (2, "k", b"w"),
        (1, "n", b"41"),
        (4, "q", b"1"),
        (5, "q", b""),
        (3, "n", b""),
    ]
    assert table.take_records() == b""
    other.note_changes()
    assert all(other.repeat(*change) for change in changes)
    assert other.take_records() == b""  # the log has them
    assert other.find_all(["k"]) == [b"vw"]
    assert other.list_keys() == ["k"]


def test_a_change_of_no_known_kind_is_not_made():
    table = StoreTable()
    assert not table.repeat(6, "k", b"v")
    assert not table.repeat(0, "k", b"v")
    assert table.num_keys() == 0


def test_what_is_cleared_is_noted_no_more():
    table = StoreTable()
    table.note_changes()
    table.set("k", "v")
    table.push("q", "v")
    table.clear()
    assert not table.contains_all(["k"])
    assert not table.contains_all(["q"])
    assert table.take_records() == b""


def test_a_value_that_cannot_be_one_leaves_all_as_it_was():
    table = StoreTable()
    with pytest.raises(TypeError, match="value must be str or bytes, got 5"):
        table.set_all(["a", "b"], ["1", 5])
    with pytest.raises(ValueError, match="multi_set: 2 keys but 1 values"):
        table.set_all(["a", "b"], ["1"])
    assert table.num_keys() == 0


def test_a_key_that_is_no_text_is_refused():
    with pytest.raises(UnicodeEncodeError, match="surrogates not allowed"):
        StoreTable().set("\ud800", "v")
