"""Ranks of torch programs killed at random moments: who is told, and how soon?

    python benchmarks/torch_kills.py [--count N] [--ranks N] [--seed N] [--limit S]

Each round forks the ranks of one program, kills one of them with SIGKILL at a moment
that the seed chooses within three steps, and lets the others go on until a call raises.
They end then in one of three ways: by that exception, after destroying their groups, or
as if nothing had been. What must hold (exit status 1 otherwise): every survivor gets an
error that names a rank that is gone within the limit (1 s), and ends by itself with the
exit code that belongs to its way.

`--backend gloo` runs the same on Gloo, to compare.
"""

import argparse
import os
import random
import re
import shutil
import signal
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint
import torch.distributed.fsdp
import torch.distributed.pipelining
from forked_ranks import Teller, drive, fork, until
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

PATIENCE_S = 60.0  # for a program to begin, and for a survivor to be told or to end
WIDTH = 256
ENDINGS = {"raise": 1, "destroy": 0, "leave": 0}  # with the exit code of each

Step = Callable[[], object]


def model():
    layers = [nn.Linear(WIDTH, WIDTH) for _ in range(6)]
    return nn.Sequential(*layers)


def backward_of(module):
    inputs = torch.ones(4, WIDTH)

    def step():
        module.zero_grad()
        module(inputs).sum().backward()

    return step


def ddp(folder):
    return backward_of(DistributedDataParallel(model(), bucket_cap_mb=0.2))


def power_sgd(folder):
    module = DistributedDataParallel(model(), bucket_cap_mb=0.2)
    state = powerSGD_hook.PowerSGDState(None, 2, start_powerSGD_iter=2)
    module.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return backward_of(module)


def fsdp(folder):
    sharded = torch.distributed.fsdp.FullyShardedDataParallel
    parts = [sharded(part, device_id=torch.device("cpu")) for part in model()]
    return backward_of(nn.Sequential(*parts))


def fsdp2(folder):
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    module = model()
    for part in module:
        torch.distributed.fsdp.fully_shard(part, mesh=mesh)
    return backward_of(torch.distributed.fsdp.fully_shard(module, mesh=mesh))


def checkpoint(folder):
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    module = torch.distributed.fsdp.fully_shard(model(), mesh=mesh)
    return lambda: torch.distributed.checkpoint.save(
        module.state_dict(), checkpoint_id=folder / "checkpoint"
    )


def pipeline(folder):
    rank, size = dist.get_rank(), dist.get_world_size()
    stage = torch.distributed.pipelining.PipelineStage(
        nn.Linear(WIDTH, WIDTH), rank, size, torch.device("cpu")
    )
    schedule = torch.distributed.pipelining.Schedule1F1B(
        stage, 2 * size, loss_fn=lambda output, target: (output - target).sum()
    )
    batch = torch.ones(4 * size, WIDTH)
    if rank == 0:
        return lambda: schedule.step(batch)
    if rank == size - 1:
        return lambda: schedule.step(target=batch)
    return schedule.step


def objects(folder):
    size = dist.get_world_size()
    return lambda: dist.all_gather_object([None] * size, {"weights": [0.5] * 500})


def handles(folder):
    tensors = [torch.ones(1 << (4 * i)) for i in range(5)]

    def step():
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        future = dist.all_reduce(tensors[2], async_op=True).get_future()
        doubled = future.then(lambda done: [2 * tensor for tensor in done.value()])
        for work in reversed(works):
            work.wait()
        doubled.wait()

    return step


PROGRAMS = {
    "DDP backward": ddp,
    "all_gather_object": objects,
    "FSDP": fsdp,
    "FSDP2": fsdp2,
    "checkpoint.save": checkpoint,
    "pipeline": pipeline,
    "handles and futures": handles,
    "DDP with PowerSGD": power_sgd,
}


@dataclass(frozen=True)
class Rank(Teller):
    """One process of a round; it tells the driver by files in its folder."""

    backend: str
    program: str
    ending: str
    rank: int
    size: int
    folder: Path

    def run(self):
        """Take steps until one raises; ends the process as `ending` says."""
        dist.init_process_group(
            self.backend,
            store=dist.FileStore(str(self.folder / "store"), self.size),
            rank=self.rank,
            world_size=self.size,
            timeout=timedelta(seconds=2 * PATIENCE_S),
        )
        torch.manual_seed(self.rank)
        step = PROGRAMS[self.program](self.folder)
        for _ in range(3):
            start = time.monotonic()
            step()
        self.tell("ready", time.monotonic() - start)
        try:
            while True:
                step()
        except BaseException as error:
            text = "".join(traceback.format_exception_only(error))
            self.tell("told", [time.monotonic(), text])
            if self.ending == "raise":
                raise
        if self.ending == "destroy":
            dist.destroy_process_group()


@dataclass(frozen=True)
class Survivor:
    """What became of a rank that was not killed."""

    program: str
    ending: str
    killed: int
    rank: int
    seconds: float | None  # until it was told; None: it was not
    text: str
    exit_code: int | None  # None: it did not end by itself
    stderr: str

    def is_named_right(self):
        """Whether its error names the rank that was killed.

        Or, in a pipeline, a neighbour that was told before and has raised.
        """
        others = {int(rank) for rank in re.findall(r"rank (\d+) \(pid ", self.text)}
        others.discard(self.rank)
        return self.killed in others or (self.program == "pipeline" and bool(others))

    def is_well(self, limit):
        """Whether it was told within `limit` seconds, and ended as it meant to."""
        return (
            self.seconds is not None
            and self.seconds <= limit
            and self.is_named_right()
            and self.exit_code == ENDINGS[self.ending]
        )


def play(backend, program, ending, size, chance, folder):
    """One round: the survivors of it."""
    ranks = [Rank(backend, program, ending, rank, size, folder) for rank in range(size)]
    pids = [fork(rank) for rank in ranks]
    codes: dict[int, int] = {}

    def has_ended(rank):
        if rank.rank not in codes:
            pid, status = os.waitpid(pids[rank.rank], os.WNOHANG)
            if pid:
                codes[rank.rank] = os.waitstatus_to_exitcode(status)
        return rank.rank in codes

    try:
        if not until(lambda: all(r.told("ready") for r in ranks), PATIENCE_S):
            texts = [(folder / f"{r.rank}.stderr").read_text() for r in ranks]
            raise RuntimeError(f"{program}: the ranks do not begin: {texts}")
        victim = chance.randrange(size)
        time.sleep(chance.random() * 3 * max(r.told("ready") for r in ranks))
        killed_at = time.monotonic()
        os.kill(pids[victim], signal.SIGKILL)
        others = [rank for rank in ranks if rank.rank != victim]
        until(lambda: all([has_ended(rank) for rank in others]), PATIENCE_S)
    finally:
        for rank in ranks:
            if not has_ended(rank):
                os.kill(pids[rank.rank], signal.SIGKILL)
                os.waitpid(pids[rank.rank], 0)
    return [
        Survivor(
            *(program, ending, victim, rank.rank),
            *told_after(rank.told("told"), killed_at),
            codes.get(rank.rank),
            (folder / f"{rank.rank}.stderr").read_text(),
        )
        for rank in others
    ]


def told_after(told, killed_at):
    return (None, "") if told is None else (told[0] - killed_at, told[1])


def play_all(options):
    chance = random.Random(options.seed)
    names = [options.program] if options.program else list(PROGRAMS)
    folder = Path(tempfile.mkdtemp())
    survivors = []
    console = Console(stderr=True)
    for number in track(
        range(options.count), "kills", console=console, disable=not console.is_terminal
    ):
        round_folder = folder / str(number)
        round_folder.mkdir()
        program = names[number % len(names)]
        ending = list(ENDINGS)[number // len(names) % len(ENDINGS)]
        survivors += play(
            options.backend, program, ending, options.ranks, chance, round_folder
        )
    shutil.rmtree(folder)
    return survivors


def report(survivors, options):
    table = Table("program", "survivors", "well", "told: median", "max", "exit codes")
    for name in [*dict.fromkeys(s.program for s in survivors), None]:
        some = [s for s in survivors if name in (None, s.program)]
        seconds = [s.seconds for s in some if s.seconds is not None]
        codes = sorted({str(s.exit_code) for s in some})
        table.add_row(
            name or "all",
            str(len(some)),
            str(sum(s.is_well(options.limit) for s in some)),
            f"{statistics.median(seconds):.3f} s" if seconds else "never",
            f"{max(seconds):.3f} s" if seconds else "never",
            " ".join(codes),
        )
    console = Console()
    console.print(table)
    console.print(
        f"{options.count} kills, {options.ranks} ranks, seed {options.seed}, "
        f"torch {torch.__version__}, {os.cpu_count()} CPUs, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    for survivor in survivors:
        if not survivor.is_well(options.limit) or options.verbose:
            console.print_json(data=asdict(survivor))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=1.0)
    parser.add_argument("--program", choices=PROGRAMS)
    parser.add_argument("--backend", default="allhands")
    parser.add_argument("--verbose", action="store_true", help="print every survivor")
    options = parser.parse_args()
    torch.set_num_threads(1)

    def driver():
        survivors = play_all(options)
        report(survivors, options)
        return int(not all(each.is_well(options.limit) for each in survivors))

    return drive(driver)


if __name__ == "__main__":
    sys.exit(main())
