"""Ranks and hosts that die, and hosts of which nobody hears any more."""

from __future__ import annotations

import signal
import time

from drills.job import Job
from drills.scene import PLACEMENTS, Figures, Scene

SOON = 1.0  # seconds in which a process that dies is named


def _a_moment(scene: Scene) -> None:
    """Until a point in the work that is left to chance."""
    time.sleep(scene.random.random() * 0.2)


def _others(job: Job, host: int) -> list[int]:
    return [rank for rank, at in enumerate(job.placement) if at != host]


def kill_of_a_rank(scene: Scene) -> Figures:
    job = scene.job_at_work()
    victim = scene.pick(job)
    _a_moment(scene)
    at = job.kill(victim)
    survivors = [rank for rank in range(len(job.ranks)) if rank != victim]
    named = job.check_named([victim], at, SOON, survivors)
    job.check_nothing_is_left()
    return {"named after": named}


def kill_of_a_host(scene: Scene) -> Figures:
    """All processes of a host are killed; its kernel still closes their connections."""
    job = scene.job_at_work()
    host = job.placement[scene.pick(job)]
    _a_moment(scene)
    at = time.monotonic()
    job.hosts[host].signal(signal.SIGKILL)
    named = job.check_named(job.ranks_of(host), at, SOON, _others(job, host))
    job.check_nothing_is_left()
    return {"named after": named}


def power_off(scene: Scene) -> Figures:
    job = scene.job_at_work()
    host = job.placement[scene.pick(job)]
    _a_moment(scene)
    at = time.monotonic()
    job.hosts.power_off(host)
    limit = scene.heartbeat + SOON
    named = job.check_named(job.ranks_of(host), at, limit, _others(job, host))
    job.check_nothing_is_left(dead_hosts=[host])
    return {"named after": named}


def power_off_while_nobody_calls(scene: Scene) -> Figures:
    """Who calls when a host has been silent for so long is told at once."""
    placement = scene.random.choice(PLACEMENTS)
    job = scene.job(placement, "idle")
    job.wait_for_all("step")
    host = job.placement[scene.pick(job)]
    job.hosts.power_off(host)
    time.sleep(scene.heartbeat + SOON)
    at = time.monotonic()
    job.go()
    named = job.check_named(job.ranks_of(host), at, SOON, _others(job, host))
    job.check_nothing_is_left(dead_hosts=[host])
    return {"named after": named}


def freeze_for_too_long(scene: Scene) -> Figures:
    """A host is stopped; when it goes on, the others have given it up."""
    job = scene.job_at_work()
    host = job.placement[scene.pick(job)]
    _a_moment(scene)
    at = time.monotonic()
    job.freeze(host)
    dead, limit = job.ranks_of(host), scene.heartbeat + SOON
    named = job.check_named(dead, at, limit, _others(job, host))
    at = time.monotonic()
    job.thaw(host)
    told = job.check_named(dead, at, SOON, dead)
    job.check_nothing_is_left()
    return {"named after": named, "told itself after": told}


def freeze_for_a_while(scene: Scene) -> Figures:
    """A host is stopped for less than the limit: that only takes time."""
    job = scene.job_at_work()
    host = job.placement[scene.pick(job)]
    _a_moment(scene)
    job.freeze(host)
    time.sleep(0.6 * scene.heartbeat)
    at = time.monotonic()
    job.thaw(host)
    job.wait_for_all("step", after=at)
    went_on = time.monotonic() - at
    job.stop()
    job.check_good()
    job.check_nothing_is_left()
    return {"went on after": went_on}


def _life_with(scene: Scene, phase: str, seconds: float) -> Figures:
    """A rank kills itself at some time from the beginning of a phase on."""
    placement = scene.random.choice(PLACEMENTS)
    victim = scene.random.randrange(len(placement))
    doom = f"{phase} {scene.random.random() * seconds:.6f}"
    job = scene.job(placement, "life", dooms={victim: doom})
    ends = job.end()
    died = ends[victim].find("dies")
    at = died["at"] if died else time.monotonic()
    took = 0.0
    for rank, end in ends.items():
        if rank == victim:
            continue
        took = max(took, job.check_survivor(rank, end, victim, at))
    job.check_nothing_is_left()
    return {"ended after": took}


def death_in_init(scene: Scene) -> Figures:
    return _life_with(scene, "init", 0.15)


def death_in_making_groups(scene: Scene) -> Figures:
    return _life_with(scene, "groups", 0.03)


def death_in_an_operation(scene: Scene) -> Figures:
    return _life_with(scene, "operations", 0.1)


def death_in_destroy(scene: Scene) -> Figures:
    return _life_with(scene, "destroy", 0.03)


DRILLS = [
    kill_of_a_rank,
    kill_of_a_host,
    power_off,
    power_off_while_nobody_calls,
    freeze_for_a_while,
    freeze_for_too_long,
    death_in_init,
    death_in_making_groups,
    death_in_an_operation,
    death_in_destroy,
]
