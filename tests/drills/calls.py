"""What programs and people do: call different things, press Ctrl-C."""

from __future__ import annotations

import os
import signal
import time

from drills.scene import PLACEMENTS, Figures, Scene
from harness.decoys import mislead
from harness.pace import patient

SOON = 1.0


def mismatch(scene: Scene) -> Figures:
    job = scene.job_at_work(kinds=["mismatch"])
    job.wait_for_all("step", after=time.monotonic())
    job.stop()
    job.check_good()
    job.check_nothing_is_left()
    return {}


def ctrl_c(scene: Scene) -> Figures:
    """On one rank: it ends there, and the others are told which rank that was."""
    job = scene.job_at_work()
    pressed = scene.pick(job)
    time.sleep(scene.random.random() * 0.2)
    at = time.monotonic()
    os.kill(job.ranks[pressed].pid, signal.SIGINT)
    took = 0.0
    for rank, end in job.end().items():
        failed = end.find("failed")
        assert failed, f"rank {rank} noticed nothing\n{end.stderr}"
        if rank == pressed:
            assert failed["error"] == "KeyboardInterrupt", failed
        else:
            assert failed["error"] in ("DistBackendError", "RankFailedError"), failed
            assert f"rank {pressed} " in failed["text"], failed
            assert failed["ranks"] in (None, [], [pressed]), failed
        took = max(took, failed["at"] - at)
        job.check_end(rank, end)
    assert took < patient(SOON, at), f"{took:.2f} s (limit {SOON} s)"
    job.check_nothing_is_left()
    return {"ended after": took}


def decoys(scene: Scene) -> Figures:
    """Hosts with interfaces and names that mislead."""
    placement = scene.random.choice(PLACEMENTS)
    hosts = scene.hosts(max(placement) + 1)
    mislead(hosts, scene.folder)
    job = scene.job(placement, "all_reduce 1 MiB", hosts=hosts)
    job.wait_for_all("step")
    job.stop()
    job.check_good()
    job.check_nothing_is_left()
    return {}


DRILLS = [mismatch, ctrl_c, decoys]
