"""Settings: what their texts mean, and what is said of texts that mean nothing."""

import re
from pathlib import Path

import numpy as np
import pytest

import allhands as dist
from allhands import _C, settings
from harness.ranks import RanksFailed, run_ranks

SETTINGS_PAGE = Path(__file__).parents[2] / "docs/reference/settings.md"


def test_tuning_numbers_have_units(monkeypatch):
    monkeypatch.setenv("ALLHANDS_TUNING", "chunk_bytes=64K, spins=7,read_bytes=1t")
    assert settings.tuning.get() == {
        "chunk_bytes": 65536,
        "spins": 7,
        "read_bytes": 1 << 40,
    }


@pytest.mark.parametrize(
    "text", ["chunk_bytes", "spins=many", "spins=-1", "spins=K", "größe=1"]
)
def test_tuning_that_is_no_number_is_refused(monkeypatch, text):
    monkeypatch.setenv("ALLHANDS_TUNING", text)
    with pytest.raises(ValueError, match=f"ALLHANDS_TUNING.*'{text}' is not name=num"):
        settings.tuning.get()


@pytest.mark.parametrize("text", ["long", "-1", "nan"])
def test_a_patience_that_is_none_is_refused(monkeypatch, text):
    monkeypatch.setenv("ALLHANDS_PATIENCE", text)
    with pytest.raises(ValueError, match=f"ALLHANDS_PATIENCE is '{text}'"):
        settings.patience.get()


@pytest.mark.parametrize(
    ("text", "ports"),
    [("29600-29699", (29600, 29699)), ("4471", (4471, 4471)), ("1-65535", (1, 65535))],
)
def test_a_range_of_ports(monkeypatch, text, ports):
    monkeypatch.setenv("ALLHANDS_PORT_RANGE", text)
    assert settings.port_range.get() == ports


@pytest.mark.parametrize(
    "text", ["many", "0", "5-4", "1-65536", "4471-", "-4471", "1-2-3"]
)
def test_a_range_of_ports_that_is_none_is_refused(monkeypatch, text):
    monkeypatch.setenv("ALLHANDS_PORT_RANGE", text)
    with pytest.raises(ValueError, match=f"ALLHANDS_PORT_RANGE is '{text}': "):
        settings.port_range.get()


@pytest.mark.parametrize("text", ["many", "-1", "16777217", "1.5"])
def test_a_record_length_that_is_none_is_refused(monkeypatch, text):
    monkeypatch.setenv("ALLHANDS_RECORD_LENGTH", text)
    with pytest.raises(ValueError, match=f"ALLHANDS_RECORD_LENGTH is '{text}'.*0 to 1"):
        settings.record_length.get()


@pytest.mark.parametrize("text", ["long", "0", "86401", "nan"])
def test_a_heartbeat_that_is_none_is_refused(monkeypatch, text):
    monkeypatch.setenv("ALLHANDS_HEARTBEAT", text)
    told = f"ALLHANDS_HEARTBEAT is '{text}': it must be a number of seconds from 0.1 to"
    with pytest.raises(ValueError, match=told):
        settings.heartbeat.get()


def test_a_mistake_is_told_before_ranks_meet(monkeypatch):
    monkeypatch.setenv("ALLHANDS_HEARTBEAT", "long")
    with pytest.raises(ValueError, match="ALLHANDS_HEARTBEAT is 'long'") as caught:
        dist.init_process_group(store=dist.HashStore(), rank=0, world_size=2)
    names = [entry.name for entry in caught.traceback]
    assert names[1:] == ["init_process_group", "check_all", "get"]
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert not dist.is_initialized()


def test_variables_that_are_no_settings_are_found(monkeypatch):
    for name in settings.unknown():
        monkeypatch.delenv(name)
    assert settings.unknown() == {}
    monkeypatch.setenv("ALLHANDS_PATIENSE", "3")
    monkeypatch.setenv("ALLHANDS_ELEPHANTS", "5")
    monkeypatch.setenv("ELEPHANTS", "5")
    assert settings.unknown() == {
        "ALLHANDS_PATIENSE": "is no setting; did you mean ALLHANDS_PATIENCE?",
        "ALLHANDS_ELEPHANTS": "is no setting; `allhands info` lists them",
    }


def test_every_tuning_is_on_the_settings_page():
    page = SETTINGS_PAGE.read_text().partition("## Tuning")[2]
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.M)) == set(_C.tuning_here(2))


def test_tuning_of_any_size_gives_the_same_bits(monkeypatch):
    monkeypatch.setenv("ALLHANDS_TUNING", "chunk_bytes=4K,one_phase_bytes=0,spins=0")

    def body(rank):
        small = np.full(3, rank + 1.0)
        large = np.arange(100_003.0) * (rank + 1)
        dist.all_reduce(small)
        dist.all_reduce(large)
        return small, large

    for small, large in run_ranks(3, body):
        np.testing.assert_array_equal(small, [6.0, 6.0, 6.0])
        np.testing.assert_array_equal(large, np.arange(100_003.0) * 6)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("speed=9", "there is no 'speed'; there are one_phase_bytes, chunk_bytes"),
        ("chunk_bytes=2M", "chunk_bytes must be in .4096, 1048576., got 2097152"),
    ],
)
def test_unknown_tuning_is_refused(monkeypatch, text, problem):
    monkeypatch.setenv("ALLHANDS_TUNING", text)
    with pytest.raises(RanksFailed, match=f"ArgumentError: tuning: {problem}"):
        run_ranks(2, lambda rank: None)


def test_a_setting_of_words_is_the_word_that_is_set(monkeypatch):
    monkeypatch.setenv("ALLHANDS_REDUCE_ORDER", "rank")
    assert settings.reduce_order.get() == "rank"


def test_one_socket_leads_to_another_host_unless_more_are_asked_for(monkeypatch):
    monkeypatch.delenv("ALLHANDS_SOCKETS", raising=False)
    assert settings.sockets.get() == 1
    monkeypatch.setenv("ALLHANDS_SOCKETS", "16")
    assert settings.sockets.get() == 16
