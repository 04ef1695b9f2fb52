"""The journal of a table repeats what was done to it."""

from hypothesis import given
from hypothesis import strategies as st

from allhands.store.table import ChangeKind, Table

KEYS = st.sampled_from("ab")
VALUES = st.binary(max_size=4)
STEPS = st.one_of(
    st.tuples(st.just("add"), KEYS, st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just("compare_set"), KEYS, VALUES, VALUES),
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.just("pop"), KEYS),
    st.tuples(st.just("change"), st.just(ChangeKind.APPEND), KEYS, VALUES),
    st.tuples(st.just("change"), st.just(ChangeKind.PUSH), KEYS, VALUES),
)


@given(st.lists(STEPS))
def test_replaying_the_journal_gives_the_same_table(steps):
    table, replayed = Table(), Table()
    for method, *arguments in steps:
        try:
            getattr(table, method)(*arguments)
        except ValueError:
            assert method == "add"
    for change in table.journal:
        replayed.apply(*change)
    assert replayed.values == table.values
    assert replayed.queues == table.queues
    assert all(table.queues.values()), "an empty queue is no queue"
