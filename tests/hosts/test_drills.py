"""Some drills, once; `make drills` runs all, many times, with the usual heartbeat."""

import pytest

from drills.scene import Scene
from drills.table import DRILLS

OFTEN = [
    "kill_of_a_rank",
    "power_off",
    "death_in_an_operation",
    "one_way_cut",
    "broken_connections",
    "freeze_for_a_while",
    "strangers",
    "mismatch",
]


@pytest.mark.parametrize("name", OFTEN)
def test_drill(name):
    with Scene(name, 0, heartbeat=2.0) as scene:
        scene.sockets = 1
        print(DRILLS[name](scene))


@pytest.mark.parametrize("name", ["kill_of_a_rank", "power_off", "broken_connections"])
def test_drill_with_several_sockets(name):
    with Scene(name, 0, heartbeat=2.0) as scene:
        scene.sockets = 2
        print(DRILLS[name](scene))
