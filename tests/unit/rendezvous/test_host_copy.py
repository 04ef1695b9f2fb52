"""One copy of a roster for the ranks of a host."""

import json
import os
from contextlib import ExitStack, closing
from datetime import timedelta

import pytest

from allhands import DistStoreError, HashStore
from allhands.rendezvous import host_copy
from allhands.rendezvous.host_copy import HostCopy, digest_of
from allhands.rendezvous.identity import Identity, process_identity
from allhands.rendezvous.outcome import Outcome

TEXT = "a long list of ranks" * 100
HERE = process_identity()
ELSEWHERE = Identity("another host", 1, 1)


class Counting(HashStore):
    num_fetched = 0

    def get(self, key):
        self.num_fetched += key == "roster"
        return super().get(key)


def outcome(copy=-1, text=TEXT):
    return Outcome(token="00", digest=digest_of(text.encode()), copy=copy)


def test_ranks_on_the_host_of_rank_0_have_it_from_there():
    store = Counting()
    with closing(HostCopy(store)) as rank_0, closing(HostCopy(store)) as rank_1:
        said = outcome(rank_0.publish(TEXT))
        assert said.copy >= 0
        assert rank_1.fetch(said, HERE) == TEXT.encode()
        assert not rank_1.is_kept
    assert store.num_fetched == 0


def test_elsewhere_the_first_of_a_host_fetches_it_for_all():
    store = Counting()
    store.set("roster", TEXT)
    before = os.listdir("/proc/self/fd")
    with ExitStack() as copies:
        ranks = [copies.enter_context(closing(HostCopy(store))) for _ in range(5)]
        for rank in ranks:
            assert rank.fetch(outcome(3), ELSEWHERE) == TEXT.encode()
        assert [rank.is_kept for rank in ranks] == [True] + [False] * 4
        assert store.num_fetched == 1
    assert store.list_keys() == ["roster"]
    assert os.listdir("/proc/self/fd") == before


def test_who_cannot_open_the_copy_gets_it_from_the_store(tmp_path):
    store = Counting()
    store.set("roster", TEXT)
    os.mkfifo(tmp_path / "fifo")
    with (
        open("/dev/zero", "rb") as zero,
        open(os.open(tmp_path / "fifo", os.O_RDWR), "rb") as fifo,
        open(__file__, "rb") as another,
    ):
        for fd in (-1, 99999, zero.fileno(), fifo.fileno(), another.fileno()):
            assert HostCopy(store).fetch(outcome(fd), HERE) == TEXT.encode()
    assert store.num_fetched == 5


@pytest.mark.parametrize(
    "said", [b"[]", b"\xff", b'["x", 1, 1, "", "1"]', b"[1, 2, 3, 4, 5]"]
)
def test_who_is_told_nonsense_gets_it_from_the_store(said):
    store = Counting()
    store.set("roster", TEXT)
    with closing(HostCopy(store)) as first:
        first.fetch(outcome(), ELSEWHERE)
        [key] = [key for key in store.list_keys() if key.endswith("/copy")]
        store.set(key, said)
        assert HostCopy(store).fetch(outcome(), ELSEWHERE) == TEXT.encode()
    assert store.num_fetched == 2


def test_a_first_rank_that_died_holds_up_nobody(monkeypatch):
    monkeypatch.setattr(host_copy, "_ANSWER", timedelta(seconds=0.01))
    store = Counting()
    store.set("roster", TEXT)

    class Deadly(HashStore):
        """Of a rank that ends before it can say where it has the roster."""

        def set(self, key, value):
            raise SystemExit

    dying = Deadly()
    dying._table = store._table
    dying.delete_key = lambda key: True
    with pytest.raises(SystemExit), closing(HostCopy(dying)) as first:
        first.fetch(outcome(), ELSEWHERE)
    assert HostCopy(store).fetch(outcome(), ELSEWHERE) == TEXT.encode()


def test_the_roster_of_another_attempt_is_refused():
    store = HashStore()
    store.set("roster", json.dumps("another one"))
    with pytest.raises(DistStoreError, match="not the one that rank 0 left: b'\"anoth"):
        HostCopy(store).fetch(outcome(), HERE)
