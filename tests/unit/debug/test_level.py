"""The debug level."""

import pytest

import allhands as dist
from allhands.groups.world import World, use


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
