"""What a launcher notes of ranks that have ended well."""

from allhands import HashStore
from allhands.store.endings import Endings, part_of_attempt


def test_who_has_ended_is_read_by_worlds_of_as_many_ranks():
    store = HashStore()
    Endings(store, 3).note(1, 4711)
    told = Endings(store, 3)
    assert told.ranks() == [1]
    assert (told.pid_of(0), told.pid_of(1)) == (None, 4711)
    assert Endings(store, 2).ranks() == []
    assert Endings(store, 2).pid_of(1) is None


def test_each_start_of_the_ranks_has_notes_of_its_own():
    store = HashStore()
    Endings(part_of_attempt(store, "0"), 2).note(0, 1)
    assert Endings(part_of_attempt(store, "1"), 2).ranks() == []


def test_what_is_no_pid_is_no_note():
    store = HashStore()
    store.set("ended/2/0", "soon")
    assert Endings(store, 2).pid_of(0) is None
