"""How a job ends, as all nodes conclude from one log."""

from allhands.elastic.course import Course
from allhands.elastic.log_entry import Kind, LogEntry


def course(num_nodes: int, *entries: LogEntry) -> Course:
    made = Course(num_nodes)
    for entry in entries:
        made.note(entry)
    return made


def test_is_settled_once_every_node_is_done():
    made = course(2, LogEntry(Kind.DONE, 1))
    assert not made.is_settled
    assert not made.is_clean
    made.note(LogEntry(Kind.DONE, 0))
    assert made.is_settled
    assert made.is_clean
    assert made.cause is None


def test_lost_and_left_nodes_are_not_waited_for():
    made = course(3, LogEntry(Kind.LOST, 1, 1), LogEntry(Kind.DONE, 0))
    assert not made.is_settled
    made.note(LogEntry(Kind.LEFT, 2))
    assert made.is_settled
    assert not made.is_clean
    assert (made.lost, made.left) == ({1}, {2})


def test_the_first_cause_counts_unless_it_only_followed():
    followed = LogEntry(Kind.FAILED, 0, 1, is_secondary=True)
    later_one = LogEntry(Kind.FAILED, 2, 1, is_secondary=True)
    cause = LogEntry(Kind.FAILED, 1, 7)
    last = LogEntry(Kind.LOST, 2, 1)
    assert course(3, followed, later_one).cause == followed
    assert course(3, followed, later_one, cause, last).cause == cause
    assert course(3, cause, followed).cause == cause


def test_a_signal_after_a_failure_is_known():
    failed, signaled = LogEntry(Kind.FAILED, 1, 7), LogEntry(Kind.SIGNALED, 0, 2)
    made = course(2, failed)
    assert not made.is_signaled
    made.note(signaled)
    assert made.is_signaled
    assert made.cause == failed
    made.next_attempt()
    assert not made.is_signaled


def test_another_attempt_knows_nothing_of_the_last_but_who_is_gone():
    made = course(2, LogEntry(Kind.LOST, 1, 1), LogEntry(Kind.KILLED, 0))
    assert made.is_to_kill
    made.next_attempt()
    assert made.cause is None
    assert not made.is_to_kill
    assert made.lost == {1}
    made.note(LogEntry(Kind.DONE, 0))
    assert made.is_settled
