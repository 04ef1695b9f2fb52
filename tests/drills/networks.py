"""What networks do: lose one way or both for a while or for good, break connections, be
slow, be closed to most, and be full of strangers.
"""

from __future__ import annotations

import subprocess
import sys
import time

from drills.job import LIMIT, PORT, PORTS, Job
from drills.scene import KINDS, PLACEMENTS, Figures, Scene
from harness.pace import patient

SOON = 1.0

# Where hosts have one rank each and all speak to all, every cut is met by every rank.
PAIRS = [[0, 1], [0, 0, 1], [0, 1, 1], [0, 1, 0, 1]]


def _check_sides(job: Job, at: float, limit: float) -> float:
    """Hold that each of two hosts says that it does not hear the other's ranks."""
    took = 0.0
    for host in range(2):
        dead, mine = job.ranks_of(1 - host), job.ranks_of(host)
        took = max(took, job.check_named(dead, at, limit, mine))
    return took


def partition(scene: Scene) -> Figures:
    job = scene.job_at_work(PAIRS)
    at = time.monotonic()
    job.hosts.cut(0, 1)
    job.hosts.cut(1, 0)
    took = _check_sides(job, at, scene.heartbeat + SOON)
    job.check_nothing_is_left()
    return {"said after": took}


def one_way_cut(scene: Scene) -> Figures:
    job = scene.job_at_work(PAIRS)
    sender = scene.random.randrange(2)
    at = time.monotonic()
    job.hosts.cut(sender, 1 - sender)
    took = _check_sides(job, at, scene.heartbeat + SOON)
    job.check_nothing_is_left()
    return {"said after": took}


def cut_that_heals(scene: Scene) -> Figures:
    """In the middle of large operations, for less than the limit: data is right."""
    # TCP sends again within a second, and a loaded machine cuts and heals slowly.
    scene.heartbeat = 7.0
    job = scene.job_at_work(PLACEMENTS, ["all_reduce 64 MiB"])
    ways = [(0, 1), (1, 0)]
    time.sleep(scene.random.random() * 0.2)
    for way in scene.random.choice([ways, ways, ways[:1], ways[1:]]):
        job.hosts.cut(*way)
    time.sleep(3.25)
    at = time.monotonic()
    for way in ways:
        job.hosts.heal(*way)
    job.wait_for_all("step", after=at)
    went_on = time.monotonic() - at
    job.stop()
    job.check_good()
    job.check_nothing_is_left()
    return {"went on after": went_on}


def broken_connections(scene: Scene) -> Figures:
    """In the middle of large operations, more than once: data is right."""
    job = scene.job_at_work(PLACEMENTS, ["all_reduce 64 MiB"])
    first, last = map(int, PORTS.split("-"))
    num_broken, went_on = 0, 0.0
    for _ in range(scene.random.randint(2, 4)):
        time.sleep(scene.random.random() * 0.2)
        host = job.hosts[scene.random.randrange(2)]
        at = time.monotonic()
        num_broken += host.break_connections(first, last)
        job.wait_for_all("step", after=at)
        went_on = max(went_on, time.monotonic() - at)
    assert num_broken > 0
    assert went_on < patient(5, at), f"the next step took {went_on:.1f} s"
    job.stop()
    job.check_good()
    job.check_nothing_is_left()
    return {"went on after": went_on}


def _over_wire(scene: Scene, *options: str) -> Figures:
    placement = scene.random.choice(PLACEMENTS)
    hosts = scene.hosts(max(placement) + 1)
    hosts.lay_wire(*options, f"--seed={scene.random.random()}")
    at = time.monotonic()
    job = scene.job(placement, scene.random.choice(KINDS), hosts=hosts)
    job.wait_for_all("step")
    job.wait_for_all("step", after=time.monotonic())
    took = time.monotonic() - at
    job.stop()
    job.check_good()
    job.check_nothing_is_left()
    return {"some steps took": took}


def loss(scene: Scene) -> Figures:
    return _over_wire(scene, "--loss=0.01")


def delay_and_jitter(scene: Scene) -> Figures:
    return _over_wire(scene, "--delay=0.005", "--jitter=0.01")


def firewall(scene: Scene) -> Figures:
    return _over_wire(scene, f"--open-ports={PORT},{PORTS}")


STRANGERS = """
import os, random, resource, socket, struct, sys

address, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
chance = random.Random(sys.argv[4])
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 2 * count + 64),) * 2)
words = [
    b"", b"ahpe", b"ahpeers\\n" + bytes(9),
    b"ahpeers\\n" + struct.pack("<III", 1, 9, 9),
    b"GET / HTTP/1.0\\r\\n\\r\\n", b"\\x16\\x03\\x01\\x02\\x00\\x01", bytes(99),
]
here = []
for number in range(count):
    stranger = socket.create_connection((address, port), timeout=20)
    try:
        stranger.sendall(chance.choice([*words, chance.randbytes(5000)]))
        if chance.random() < 0.3:  # goes at once, without a good-bye
            at_once = struct.pack("ii", 1, 0)
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
            stranger.close()
    except OSError:
        pass  # thrown out already
    here.append(stranger)
print("came", flush=True)
sys.stdin.read()
"""


def strangers(scene: Scene, count: int = 2000) -> Figures:
    """2,000 connect to a rank's port while it works, and most of them stay."""
    hosts = scene.hosts(3)
    kinds = ["all_reduce 8 B", "all_reduce 1 MiB", "all_reduce 64 MiB"]
    job = scene.job([0, 1, 1], scene.random.choice(kinds), hosts=hosts)
    job.wait_for_all("step")
    first = PORTS.partition("-")[0]
    arguments = [hosts[0].address, first, str(count), str(scene.random.random())]
    at = time.monotonic()
    crowd = subprocess.Popen(
        hosts[2].enter(sys.executable, "-c", STRANGERS, *arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert crowd.stdout is not None
        assert crowd.stdout.readline() == "came\n"
        came = time.monotonic()
        job.wait_for_all("step", after=came)
        went_on = time.monotonic() - came
        job.stop()
        job.check_good()
    finally:
        crowd.communicate(timeout=LIMIT)
    assert went_on < patient(5, at), f"the next step took {went_on:.1f} s"
    job.check_nothing_is_left()
    return {"they came within": came - at, "went on after": went_on}


DRILLS = [
    partition,
    one_way_cut,
    cut_that_heals,
    broken_connections,
    loss,
    delay_and_jitter,
    firewall,
    strangers,
]
