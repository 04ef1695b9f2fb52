"""Which ranks there are to watch on this host."""

from types import SimpleNamespace

from allhands.debug.top import jobs as searched
from allhands.debug.top.memory import Header


def test_of_two_that_claim_a_rank_the_first_is_watched(monkeypatch):
    """Nothing stays open of the second."""
    closed = []

    def opened(pid):
        return SimpleNamespace(
            header=lambda: Header("w", 0, 1, "host"), close=lambda: closed.append(pid)
        )

    monkeypatch.setattr(searched, "open_memory", opened)
    [ranks] = searched.jobs([7, 8]).values()
    assert [each.pid for each in ranks] == [7]
    assert closed == [8]
