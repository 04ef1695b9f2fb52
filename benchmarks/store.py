"""Stores against torch's: the time of one operation, and a barrier of 1,024 clients.

    python benchmarks/store.py [--rounds N] [--calls N] [--clients N]

A server process holds both TCP stores; this process is the client of both, and has the
other stores. Rounds of the two alternate, so that what disturbs the machine disturbs
both; the numbers are medians and 99th percentiles over calls, of HashStore and
FileStore over means of 20 calls. What must hold (exit status 1 otherwise): get, add and
the acknowledged set of a TCPStore take no longer than torch's get, each operation of
HashStore and FileStore no longer than torch's, and 1,024 clients pass a barrier within
5 s. Without torch its columns stay empty.
"""

import argparse
import functools
import importlib.util
import multiprocessing
import os
import platform
import statistics
import sys
import tempfile
import threading
import time
from datetime import timedelta

from rich.console import Console
from rich.progress import track
from rich.table import Table

from allhands import FileStore, HashStore, TCPStore

HOST = "127.0.0.1"
HAS_TORCH = importlib.util.find_spec("torch") is not None
BARRIER_LIMIT_S = 5.0
PROCESSES = 8
SPAWN = multiprocessing.get_context("spawn")


def torch_store(*args, kind="TCPStore", **kwargs):
    from torch import distributed

    return getattr(distributed, kind)(*args, **kwargs)


def serve(ports, done):
    """The server process: a master of each kind, until `done`."""
    stores = {"allhands": TCPStore(HOST, 0, is_master=True)}
    if HAS_TORCH:
        stores["torch"] = torch_store(HOST, 0, is_master=True, wait_for_workers=False)
    ports.send({name: store.port for name, store in stores.items()})
    done.wait()


def connect(port_of):
    stores = {"allhands": TCPStore(HOST, port_of["allhands"])}
    if HAS_TORCH:
        stores["torch"] = torch_store(HOST, port_of["torch"], is_master=False)
    return stores


def local_stores(folder):
    """Pairs of stores without a server, by kind."""
    pairs = {
        "HashStore": {"allhands": HashStore()},
        "FileStore": {"allhands": FileStore(f"{folder}/allhands", 1)},
    }
    if HAS_TORCH:
        pairs["HashStore"]["torch"] = torch_store(kind="HashStore")
        path = f"{folder}/torch"
        pairs["FileStore"]["torch"] = torch_store(path, 1, kind="FileStore")
    return pairs


def small_operations(store):
    """Each a call without arguments; they leave the store as small as it was."""
    store.set("k", "v" * 16)
    return {
        "get": lambda: store.get("k"),
        "set": lambda: store.set("s", "v" * 16),
        "add": lambda: store.add("n", 1),
        "check": lambda: store.check(["k"]),
        "compare_set": lambda: store.compare_set("c", "a", "a"),
    }


def operations(store):
    """Those of a TCPStore."""
    return small_operations(store) | {
        "multi_get of 16": functools.partial(store.multi_get, ["k"] * 16),
        "set 1 MiB": functools.partial(store.set, "large", "v" * (1 << 20)),
        "get 1 MiB": lambda: store.get("large"),
    }


def time_calls(call, count, batch):
    """Microseconds of each of `count` calls; of `batch` calls each the mean."""
    times = []
    for _ in range(count // batch):
        start = time.perf_counter()
        for _ in range(batch):
            call()
        times.append((time.perf_counter() - start) * 1e6 / batch)
    return times


def measure(stores, operations, rounds, calls, batch=1):
    """Times by (operation, store), from alternating rounds."""
    table = {name: operations(store) for name, store in stores.items()}
    times = {(op, name): [] for op in table["allhands"] for name in table}
    for _ in track(range(rounds), "operations", transient=True):
        for op, name in times:
            time_calls(table[name][op], 10, 1)
            count = calls // 20 if "MiB" in op else calls
            times[op, name] += time_calls(table[name][op], count, batch)
    return times


def join_barrier(port, count, size, ready, go, spans):
    """One of the processes that make up the barrier: `count` clients as threads."""
    stores = [TCPStore(HOST, port) for _ in range(count)]
    entered, left = [], []

    def meet(store):
        gate.wait()
        entered.append(time.monotonic())
        store.barrier("bench", size, timedelta(seconds=60))
        left.append(time.monotonic())

    gate = threading.Barrier(count + 1)
    threads = [threading.Thread(target=meet, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    ready.wait()
    go.wait()
    gate.wait()
    for thread in threads:
        thread.join()
    spans.put((min(entered), max(left), len(left)))


def measure_barrier(port, clients):
    """Seconds from the first client's call to the last one's return."""
    each = -(-clients // PROCESSES)
    size = each * PROCESSES
    ready, go = SPAWN.Barrier(PROCESSES + 1), SPAWN.Event()
    spans = SPAWN.Queue()
    workers = [
        SPAWN.Process(target=join_barrier, args=(port, each, size, ready, go, spans))
        for _ in range(PROCESSES)
    ]
    start = time.monotonic()
    for worker in workers:
        worker.start()
    ready.wait()
    connected = time.monotonic() - start
    go.set()
    entered, left, passed = zip(*[spans.get() for _ in workers], strict=True)
    for worker in workers:
        worker.join()
    assert sum(passed) == size
    return size, connected, max(left) - min(entered)


def report(kind, times, console):
    """Prints the table; True where what must hold does."""
    median = {key: statistics.median(values) for key, values in times.items()}
    tail = {key: statistics.quantiles(v, n=100)[98] for key, v in times.items()}
    table = Table(title=f"{kind}: microseconds per call: median (99th percentile)")
    table.add_column("operation")
    columns = ["allhands", "torch", "torch / allhands"]
    is_served = kind == "TCPStore"  # its set is acknowledged, torch's is not
    for column in [*columns, "torch's get / allhands"] if is_served else columns:
        table.add_column(column, justify="right")
    fine = True
    for op in dict.fromkeys(op for op, _ in times):
        ours, theirs = (op, "allhands"), (op, "torch")
        row = [op, f"{median[ours]:.2f} ({tail[ours]:.2f})"]
        if HAS_TORCH:
            row += [
                f"{median[theirs]:.2f} ({tail[theirs]:.2f})",
                f"{median[theirs] / median[ours]:.2f}",
            ]
        if HAS_TORCH and not is_served:
            fine = fine and median[theirs] >= median[ours]
        if HAS_TORCH and is_served and op in ("get", "set", "add"):
            ratio = median["get", "torch"] / median[ours]
            row.append(f"{ratio:.2f}")
            fine = fine and ratio >= 1
        table.add_row(*row)
    console.print(table)
    return fine


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--calls", type=int, default=400, help="per round")
    parser.add_argument("--clients", type=int, default=1024, help="of the barrier")
    args = parser.parse_args()
    console = Console()
    receiver, sender = SPAWN.Pipe(duplex=False)
    done = SPAWN.Event()
    server = SPAWN.Process(target=serve, args=(sender, done))
    server.start()
    try:
        port_of = receiver.recv()
        times = measure(connect(port_of), operations, args.rounds, args.calls)
        fine = report("TCPStore", times, console)
        size, connected, passed = measure_barrier(port_of["allhands"], args.clients)
    finally:
        done.set()
        server.join()
    with tempfile.TemporaryDirectory() as folder:
        for kind, stores in local_stores(folder).items():
            times = measure(stores, small_operations, args.rounds, args.calls, 20)
            fine = report(kind, times, console) and fine
    console.print(
        f"barrier of {size} clients in {PROCESSES} processes: {passed:.3f} s "
        f"(limit {BARRIER_LIMIT_S:.0f} s); starting and connecting them took "
        f"{connected:.1f} s"
    )
    console.print(
        f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}, "
        f"Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}"
    )
    return 0 if fine and passed <= BARRIER_LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main())
