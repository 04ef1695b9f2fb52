"""What rank 0 asks the store about the ranks that it waits for."""

from allhands import HashStore
from allhands.rendezvous.attendance import Attendance
from allhands.rendezvous.identity import Introduction, process_identity


def attendance_of(size):
    return Attendance(HashStore(), 1, size, None)


def test_later_waits_name_only_the_ranks_that_were_not_there():
    ranks = attendance_of(4)
    assert ranks.keys_of_absent() == [f"identity/{rank}" for rank in range(4)]
    ranks.come(1, Introduction(4, process_identity()))
    ranks.come(3, Introduction(4, process_identity()))
    assert ranks.present() == [1, 3]
    assert ranks.keys_of_absent() == ["identity/0", "identity/2"]


def test_a_rank_that_gave_up_is_waited_for_again():
    ranks = attendance_of(2)
    for rank in range(2):
        ranks.come(rank, Introduction(2, process_identity()))
    assert ranks.present() == [0, 1]
    assert ranks.keys_of_absent() == []
    ranks.give_up(1)
    assert ranks.introductions() is None
    assert ranks.present() == [0]
    assert ranks.keys_of_absent() == ["identity/1"]


def test_ranks_that_have_not_read_lag_except_rank_0():
    ranks = attendance_of(4)
    ranks.have_read(2)
    assert ranks.lagging() == [1, 3]
