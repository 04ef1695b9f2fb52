"""A job on fake hosts, one process for each rank, and what its ranks have told."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from harness.fake_hosts import FakeHosts
from harness.launcher import environment
from harness.pace import patient

PORT = 29500
PORTS = "29600-29619"
LIMIT = 120.0  # seconds; only what hangs meets it

Event = dict[str, Any]


class Outcome(NamedTuple):
    """How a rank ended."""

    code: int
    events: list[Event]
    stderr: str

    def find(self, said: str) -> Event | None:
        return next((event for event in self.events if event["said"] == said), None)


class Rank:
    """One of them."""

    def __init__(self, process: subprocess.Popen[str], stderr: pathlib.Path) -> None:
        self.process = process
        self._stderr = stderr
        self._events: list[Event] = []
        self._changed = threading.Condition()
        self._is_over = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.endswith("\n"):
                break  # it was killed in the middle of it
            with self._changed:
                self._events.append(json.loads(line))
                self._changed.notify_all()
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def wait_for(self, said: str, after: float = 0.0) -> Event:
        """What it said last so, once that was later than `after`."""

        def latest() -> Event | None:
            for event in reversed(self._events):
                if event["said"] == said and event["at"] > after:
                    return event
            return None

        with self._changed:
            self._changed.wait_for(lambda: latest() or self._is_over, LIMIT)
            if found := latest():
                return found
        told = "\n".join(map(str, self._events[-5:]))
        raise AssertionError(f"a rank did not say {said!r}:\n{told}\n{self.stderr()}")

    @property
    def pid(self) -> int:
        """As seen from outside: it is the one child of what entered its host."""
        entered = self.process.pid
        path = pathlib.Path(f"/proc/{entered}/task/{entered}/children")
        [pid] = map(int, path.read_text().split())
        return pid

    def stderr(self) -> str:
        return self._stderr.read_text()

    def end(self, deadline: float) -> Outcome:
        try:
            code = self.process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            told = "\n".join(map(str, self._events[-5:]))
            raise AssertionError(f"a rank hangs:\n{told}\n{self.stderr()}") from None
        self._reader.join(LIMIT)
        return Outcome(code, self._events, self.stderr())

    def close(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait(LIMIT)
        self._reader.join(LIMIT)
        assert self.process.stdout is not None
        self.process.stdout.close()


class Job:
    """Its ranks, started at once.

    Args:
        hosts: where they run.
        placement: of each rank, the number of its host.
        kind: what they do, see `rank.py`.
        folder: for what they write.
        heartbeat: how long a host may be silent, in seconds.
        sockets: how many carry large data between two ranks.
        dooms: of a rank, when it is to kill itself.
    """

    def __init__(
        self,
        hosts: FakeHosts,
        placement: Sequence[int],
        kind: str,
        folder: pathlib.Path,
        heartbeat: float,
        sockets: int = 1,
        dooms: dict[int, str] | None = None,
    ) -> None:
        self.hosts, self.placement, self.folder = hosts, list(placement), folder
        self.heartbeat, self._sockets = heartbeat, sockets
        self._temporary = folder / "temporary"
        self._temporary.mkdir()
        self.ranks: list[Rank] = []
        for rank in range(len(placement)):
            self.ranks.append(self._start(rank, kind, (dooms or {}).get(rank, "")))

    def _start(self, rank: int, kind: str, doom: str) -> Rank:
        tests = pathlib.Path(__file__).parents[1]
        host = self.hosts[self.placement[rank]]
        program = str(pathlib.Path(__file__).with_name("rank.py"))
        stderr = self.folder / f"stderr{rank}"
        with stderr.open("w") as file:
            process = subprocess.Popen(
                host.enter(sys.executable, program, kind, str(self.folder)),
                env=environment(
                    RANK=str(rank),
                    WORLD_SIZE=str(len(self.placement)),
                    MASTER_ADDR=self.hosts[self.placement[0]].address,
                    MASTER_PORT=str(PORT),
                    ALLHANDS_PORT_RANGE=PORTS,
                    ALLHANDS_HEARTBEAT=str(self.heartbeat),
                    ALLHANDS_SOCKETS=str(self._sockets),
                    ALLHANDS_SECRET="a drill's",
                    PYTHONPATH=str(tests),
                    TMPDIR=str(self._temporary),
                    DOOM=doom,
                ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
            )
        return Rank(process, stderr)

    @property
    def places_of_store(self) -> list[str]:
        """As errors name it."""
        address = self.hosts[self.placement[0]].address
        return [f"{address}, {PORT}", f"{address}:{PORT}"]

    def ranks_of(self, host: int) -> list[int]:
        return [rank for rank, at in enumerate(self.placement) if at == host]

    def wait_for_all(self, said: str, after: float = 0.0) -> None:
        for rank in self.ranks:
            rank.wait_for(said, after)

    def kill(self, rank: int) -> float:
        """Kill it; when that was."""
        pid = self.ranks[rank].pid
        at = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        return at

    def freeze(self, host: int) -> None:
        """Stop all processes of a host."""
        self.hosts[host].signal(signal.SIGSTOP)

    def thaw(self, host: int) -> None:
        """Have them go on."""
        self.hosts[host].signal(signal.SIGCONT)
        for rank in self.ranks_of(
            host
        ):  # what entered the host stops with what it runs
            self.ranks[rank].process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Tell them to come to an end."""
        (self.folder / "stop").touch()

    def go(self) -> None:
        (self.folder / "go").touch()

    def end(self, ranks: Sequence[int] | None = None) -> dict[int, Outcome]:
        """How these ended, by default all."""
        deadline = time.monotonic() + LIMIT
        wanted = range(len(self.ranks)) if ranks is None else ranks
        return {rank: self.ranks[rank].end(deadline) for rank in wanted}

    def close(self) -> None:
        for rank in self.ranks:
            rank.close()

    # --- what holds in the end ---

    def check_nothing_is_left(self, dead_hosts: Sequence[int] = ()) -> None:
        """Once all ranks have ended."""
        _until(lambda: not self._left(dead_hosts), lambda: f"{self._left(dead_hosts)}")

    def _left(self, dead_hosts: Sequence[int]) -> list[str]:
        left = [str(path) for path in self._temporary.iterdir()]
        for number, host in enumerate(self.hosts.hosts):
            if number in dead_hosts:
                continue
            left += [f"process {pid} of host {number}" for pid in host.pids()]
            left += host.run("ls", "-A", "/dev/shm").split()
            names = pathlib.Path(f"/proc/{host.pid}/net/unix").read_text()
            left += names.splitlines()[1:]
        return left

    def check_good(self) -> None:
        """Hold that all ranks came to a good end."""
        for rank, end in self.end().items():
            assert end.find("done"), f"rank {rank}: {end.find('failed')}\n{end.stderr}"
            self.check_end(rank, end)

    def check_named(
        self, dead: Sequence[int], at: float, limit: float, among: Sequence[int]
    ) -> float:
        """Hold that all ranks of `among` name some of `dead`, and nobody else, within
        `limit` of `at`.

        Returns how many seconds the last of them took.
        """
        took = 0.0
        for rank, end in self.end(among).items():
            failed = end.find("failed")
            assert failed, f"rank {rank} noticed nothing\n{end.stderr}"
            assert failed["error"] == "RankFailedError", f"rank {rank}: {failed}"
            assert failed["ranks"], f"rank {rank}: {failed}"
            assert set(failed["ranks"]) <= set(dead), f"rank {rank}: {failed}"
            took = max(took, failed["at"] - at)
            self.check_end(rank, end)
        assert took < patient(limit, at), f"{took:.2f} s (limit {limit:.1f} s)"
        return took

    def check_survivor(self, rank: int, end: Outcome, victim: int, at: float) -> float:
        """Hold that a rank came to a good end, or named the one that died `at` soon.

        Returns how many seconds it took.
        """
        self.check_end(rank, end)
        parted, began = end.find("parted"), end.find("init")
        assert parted, end
        assert began, end
        took = parted["at"] - max(at, began["at"])
        failed = end.find("failed")
        if failed:
            # One that had heard of the death before may have left a group since.
            if "left the group" not in failed["text"]:
                assert failed["ranks"] in (None, [victim]), f"rank {rank}: {failed}"
            # Nobody knows of a rank that dies before it has reached the store, or
            # serves it: then the others wait until their time is up.
            told = (
                *(f"rank {victim} ", f"[{victim}]", "left the group"),
                *self.places_of_store,
            )
            assert any(text in failed["text"] for text in told), (
                f"rank {rank}: {failed}"
            )
            if "timed out" in failed["text"]:
                return took
        assert took < patient(2.0, at), (
            f"rank {rank} ended after {took:.1f} s: {failed}"
        )
        return took

    def check_end(self, rank: int, end: Outcome) -> None:
        ended = end.find("ended")
        assert end.code == 0, f"rank {rank}: {end}"
        assert ended, f"rank {rank}: {end}"
        assert not ended["left"], f"rank {rank} has left: {end.events[-5:]}"
        assert end.stderr == "", f"rank {rank}: {end.stderr}"


def _until(condition: Callable[[], bool], told: Callable[[], str]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, told()
        time.sleep(0.01)
