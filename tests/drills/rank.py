"""A rank of a drill: does one kind of work until it is told to stop, or cannot go on.

It tells what comes of it by lines of JSON, each with what it "said" and the time "at"
which it did, by the clock that all hosts of this machine share.

Usage: rank.py KIND FOLDER, with a KIND of work.py, or "idle", which calls nothing
before FOLDER/go is there, or "life", which goes through all phases of a job and says
so. With DOOM="PHASE SECONDS" it kills itself so long after it has said that.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import sys
import threading
import time
from datetime import timedelta

import numpy as np

import allhands as dist
from drills.work import WORKS

KIND, FOLDER = sys.argv[1:]
# Nobody knows a rank 0 that dies before it serves the store.
LIMIT = timedelta(seconds=10 if KIND == "life" else 90)
GOING = 15.0  # seconds for what outlasts a group, for those who come late to it
EVERY = 0.05  # seconds between two lines that say which step this is


def say(what: str, **more: object) -> None:
    line = json.dumps({"said": what, "at": time.monotonic(), **more})
    os.write(1, f"{line}\n".encode())
    if os.environ.get("DOOM", "").startswith(f"{what} "):
        threading.Thread(target=die, daemon=True).start()


def die() -> None:
    time.sleep(float(os.environ["DOOM"].rpartition(" ")[2]))
    say("dies")
    os.kill(os.getpid(), signal.SIGKILL)


def held() -> dict[str, int]:
    """What this process has that it may leave behind, and how often."""
    things = ["thread" for _ in os.listdir("/proc/self/task")]
    for name in os.listdir("/proc/self/fd"):
        try:
            thing = os.readlink(f"/proc/self/fd/{name}")
        except OSError:  # that of the folder
            continue
        # Where others find its flight records: they end with the process.
        if not thing.startswith(("/memfd:allhands.record.", "/memfd:allhands.flight.")):
            things.append(thing.partition(":")[0])
    return {thing: things.count(thing) for thing in things}


def more_than(before: dict[str, int]) -> dict[str, int]:
    return {thing: n for thing, n in held().items() if n > before.get(thing, 0)}


def is_there(name: str) -> bool:
    return os.path.exists(os.path.join(FOLDER, name))


def wait_for(name: str) -> None:
    while not is_there(name):
        time.sleep(0.002)


def work() -> None:
    """Until some rank sees that all are to stop."""
    step = WORKS[KIND](dist.get_rank(), dist.get_world_size())
    said = 0.0
    stop = np.zeros(1)
    number = 0
    while stop[0] == 0:
        step(number)
        if time.monotonic() - said > EVERY:
            said = time.monotonic()
            say("step", number=number)
        stop[0] = is_there("stop")
        dist.all_reduce(stop, dist.ReduceOp.MAX)
        number += 1


def idle() -> None:
    dist.barrier()
    say("step", number=0)
    wait_for("go")
    say("calls")
    dist.barrier()


def life() -> None:
    ranks = list(range(dist.get_world_size()))
    say("groups")
    everybody = dist.new_group(ranks)
    ends = dist.new_group([ranks[0], ranks[-1]])
    say("operations")
    for count in (1, 100_000, 2_000_000):
        array = np.ones(count)
        dist.all_reduce(array, group=everybody)
        assert (array == len(ranks)).all(), "wrong data"
        if dist.get_rank() in (ranks[0], ranks[-1]):
            array = np.ones(count)
            dist.broadcast(array, ranks[0], group=ends)


def tell_the_others() -> None:
    """A message fails alone, and who waits for this rank is to hear of the lost one."""
    with contextlib.suppress(dist.DistError):
        dist.barrier()


def main() -> None:
    before = held()
    say("init")
    try:
        dist.init_process_group(timeout=LIMIT)
        say("met", rank=dist.get_rank())
        {"idle": idle, "life": life}.get(KIND, work)()
        say("done")
    except BaseException as error:
        say(
            "failed",
            error=type(error).__name__,
            ranks=getattr(error, "ranks", None),
            text=str(error),
        )
        if isinstance(error, dist.RankFailedError) and dist.is_initialized():
            tell_the_others()
    say("destroy")
    try:
        if dist.is_initialized():
            dist.destroy_process_group()
    except dist.DistError as error:
        say("lost", text=str(error))
    say("parted")
    end = time.monotonic() + GOING
    while (left := more_than(before)) and time.monotonic() < end:
        gc.collect()  # an exception and its frames may hold each other, and a group
        time.sleep(0.01)
    say("ended", left=left)


if __name__ == "__main__":
    main()
