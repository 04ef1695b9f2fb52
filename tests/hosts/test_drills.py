"""Each drill once; `make drills` runs them many times, with the default heartbeat."""

import pytest

from drills.scene import Scene
from drills.table import DRILLS


@pytest.mark.parametrize("name", DRILLS)
def test_drill(name):
    with Scene(name, 0, heartbeat=2.0) as scene:
        print(DRILLS[name](scene))
