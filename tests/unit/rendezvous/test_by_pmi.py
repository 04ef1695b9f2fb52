"""Which ranks meet by PMI, and what they make of what is published there."""

from datetime import timedelta

import pytest

from allhands.errors import DistStoreError
from allhands.rendezvous import by_pmi, mpi_job
from allhands.rendezvous.by_pmi import meet_by_pmi, meets_by_pmi
from allhands.rendezvous.launched import Launched

TIMEOUT = timedelta(seconds=60)


class Names:
    """A launcher's names."""

    def __init__(self):
        self.texts = {}

    def publish(self, name, text):
        self.texts[name] = text

    def look_up(self, name):
        return self.texts.get(name)


@pytest.fixture
def names(monkeypatch):
    """What all ranks of this process see."""
    found = Names()
    monkeypatch.setattr(by_pmi, "pmi", lambda: found)
    monkeypatch.setattr(by_pmi, "has_pmi", lambda: True)
    monkeypatch.setattr(by_pmi, "_place", None)
    monkeypatch.setattr(by_pmi, "_launcher", "")
    return found


def ranks(launcher, host="127.0.0.1"):
    return [Launched(launcher, rank, 2, "job", 0, 1, host) for rank in range(2)]


@pytest.mark.parametrize(
    ("launcher", "choice", "is_met"),
    [
        ("mpiexec", "", True),
        ("mpiexec", "auto", True),
        ("mpiexec", "yes", True),
        ("mpiexec", "no", False),
        ("srun", "", False),
        ("srun", "yes", True),
    ],
)
def test_whose_pmi_is_used(names, monkeypatch, launcher, choice, is_met):
    monkeypatch.setenv("ALLHANDS_PMI", choice)
    rank, _ = ranks(launcher)
    assert meets_by_pmi(rank) == is_met
    monkeypatch.setattr(by_pmi, "has_pmi", lambda: False)
    assert not meets_by_pmi(rank)


def test_a_place_and_a_secret_reach_the_others(names, monkeypatch):
    monkeypatch.setenv("ALLHANDS_SECRET", "")
    first, second = ranks("mpiexec")
    host = meet_by_pmi(first, TIMEOUT)
    [text] = names.texts.values()
    assert text.isalnum(), "PMI knows no quotes"
    monkeypatch.setattr(by_pmi, "_place", None)  # as in another process
    monkeypatch.setenv("ALLHANDS_SECRET", "")
    client = meet_by_pmi(second, TIMEOUT)
    host.set("key", "value")
    assert client.get("key") == b"value"
    assert client.port == host.port


def test_it_is_looked_up_once(names, monkeypatch):
    monkeypatch.setenv("ALLHANDS_SECRET", "of the user's")
    first, second = ranks("mpiexec")
    stores = [meet_by_pmi(first, TIMEOUT)]
    names.texts.clear()
    stores += [meet_by_pmi(rank, TIMEOUT) for rank in (first, second)]
    assert len({store.port for store in stores}) == 1


@pytest.mark.parametrize("text", ["", "zz", "5b5d", b'["",1,2,"h",3,""'.hex()])
def test_what_another_program_has_published(names, text):
    names.texts["allhands"] = text
    with pytest.raises(DistStoreError, match="what rank 0 does not write"):
        meet_by_pmi(ranks("mpiexec")[1], TIMEOUT)


def test_a_place_that_nobody_publishes(names):
    with pytest.raises(DistStoreError, match=r"waited 0\.05 s .* for rank 0"):
        meet_by_pmi(ranks("mpiexec")[1], timedelta(seconds=0.05))


def test_mpi_does_not_begin_beside_slurms_pmi(names, monkeypatch):
    monkeypatch.setenv("ALLHANDS_SECRET", "")
    for launcher, is_refused in (("mpiexec", False), ("srun", True)):
        monkeypatch.setattr(by_pmi, "_place", None)
        meet_by_pmi(ranks(launcher)[0], TIMEOUT)
        if is_refused:
            with pytest.raises(RuntimeError, match="leave ALLHANDS_PMI unset"):
                mpi_job._check_start({"PMI_FD": "9"})
        else:
            mpi_job._check_start({"PMI_FD": "9"})
