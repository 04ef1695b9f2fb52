"""The debug level."""

import sys

import pytest

import allhands as dist
from allhands.debug import operation_log
from allhands.groups.world import World, current, use
from allhands.rendezvous import log


@pytest.fixture(autouse=True)
def fresh_world():
    with use(World()):
        yield


@pytest.mark.parametrize(
    ("text", "level"),
    [
        (None, "OFF"),
        ("", "OFF"),
        ("OFF", "OFF"),
        ("info", "INFO"),
        ("DETAIL", "DETAIL"),
    ],
)
def test_the_first_level_is_that_of_the_environment(monkeypatch, text, level):
    if text is None:
        monkeypatch.delenv("TORCH_DISTRIBUTED_DEBUG", raising=False)
    else:
        monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", text)
    assert dist.get_debug_level() is dist.DebugLevel[level]


def test_a_level_that_was_set_stays(monkeypatch):
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")
    dist.set_debug_level(dist.DebugLevel.INFO)
    dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    dist.destroy_process_group()
    assert dist.get_debug_level() is dist.DebugLevel.INFO
    dist.set_debug_level_from_env()
    assert dist.get_debug_level() is dist.DebugLevel.DETAIL


def test_what_is_no_level(monkeypatch):
    with pytest.raises(TypeError, match="must be a DebugLevel, got 1"):
        dist.set_debug_level(1)
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "LOUD")
    text = "The value of TORCH_DISTRIBUTED_DEBUG must be OFF, INFO, or DETAIL. .*'LOUD'"
    for call in (dist.get_debug_level, dist.set_debug_level_from_env):
        with pytest.raises(ValueError, match=text):
            call()


def test_levels_are_numbers():
    assert [(level.name, level.value) for level in dist.DebugLevel] == [
        ("OFF", 0),
        ("INFO", 1),
        ("DETAIL", 2),
    ]
    assert dist.DebugLevel(1) is dist.DebugLevel.INFO


@pytest.fixture
def log_by_level(monkeypatch, fresh_world):
    """The log's level is the debug level, until the test ends."""
    monkeypatch.setattr(log, "_debug_level", None)
    monkeypatch.delenv("ALLHANDS_LOG", raising=False)
    monkeypatch.setenv("TORCH_CPP_LOG_LEVEL", "INFO")
    dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.set_debug_level(dist.DebugLevel.OFF)
    dist.destroy_process_group()


def test_to_switch_the_log_on_and_off_leaves_nothing_behind(log_by_level):
    def switch():
        dist.set_debug_level(dist.DebugLevel.DETAIL)
        dist.set_debug_level(dist.DebugLevel.OFF)

    switch()
    before = sys.getrefcount(operation_log._log)
    for _ in range(10):
        switch()
    after = sys.getrefcount(operation_log._log)
    assert after == before


def test_the_log_has_the_rank_that_this_is_now(log_by_level, capfd):
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    current().fault_point.rank = 7  # as after `shrink`
    dist.barrier()
    said = capfd.readouterr().err
    assert "[rank7] operations: barrier #1 on group '0', 0 x uint8 begins" in said
    assert "[rank0] operations" not in said
