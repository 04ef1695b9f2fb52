"""All drills, by name."""

from drills import calls, deaths, networks
from drills.scene import Drill

DRILLS: dict[str, Drill] = {
    drill.__name__: drill for drill in (*deaths.DRILLS, *networks.DRILLS, *calls.DRILLS)
}
